/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* How often the threads that libfabric has in this process woke up. */
#ifndef BENCH_WAKEUPS_H
#define BENCH_WAKEUPS_H

/* Those so far of all threads that bear the name of a provider ("fi_tcp
 * helper"), as the system counts them: the switches to another thread that a
 * thread asked for itself. One that ended is not counted any more. */
long bench_wakeups(void);

#endif
