/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* How often the threads that libfabric has in this process woke up. */
#ifndef BENCH_WAKEUPS_H
#define BENCH_WAKEUPS_H

/* The number of wake-ups so far of all threads with the name of a provider
 * ("fi_tcp helper"), as the kernel counts them: the voluntary context
 * switches. Threads that have ended are not counted. */
long bench_wakeups(void);

#endif
