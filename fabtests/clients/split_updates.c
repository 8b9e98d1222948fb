/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Preloaded, reports at the end under which lock split atomic updates were
 * made: one line "split updates: <count> <library>" for each library whose
 * lock was used.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LOCKS = 8 };

static struct {
	_Atomic(void *) lock;
	atomic_ulong taken;
} locks[LOCKS];

static void count(void *lock)
{
	for (int i = 0; i < LOCKS; i++) {
		void *known = NULL;

		if (atomic_compare_exchange_strong(&locks[i].lock, &known, lock) || known == lock) {
			locks[i].taken++;
			return;
		}
	}
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);
	Dl_info found;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	if (dladdr(mutex, &found) && found.dli_sname &&
	    !strcmp(found.dli_sname, "fabric_split_updates"))
		count(mutex);
	return next(mutex);
}

__attribute__((destructor)) static void report(void)
{
	Dl_info found;

	for (int i = 0; i < LOCKS && locks[i].lock; i++)
		if (dladdr(locks[i].lock, &found))
			printf("split updates: %lu %s\n", locks[i].taken, found.dli_fname);
}
