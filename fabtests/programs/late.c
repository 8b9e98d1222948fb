/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Calls from where a thread or a process ends: destructors of thread-specific data,
 * in each of their rounds, and exit handlers.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fi_ext.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

static pthread_key_t key;
static int ends_in;		/* the round that does it */
static struct ct_spec spec;
static bool has_own;		/* the objects are opened there, too */
static struct ct_pair pair;

/* Everything, from opening to closing. */
static void use_all(void)
{
	static struct fi_context2 rx_context, tx_context;
	struct fi_cq_tagged_entry entry;
	char text[1024];
	struct fid *fid;

	if (has_own)
		ct_open_pair(&pair, &spec);
	REQUIRE(strlen(fi_strerror(FI_EAGAIN)));
	REQUIRE(fi_tostr_r(text, sizeof(text), pair.a.info, FI_TYPE_INFO));
	ct_warm_up(&pair);
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context));
	fid = &pair.b.rx.fid->fid;
	fi_trywait(pair.b.fabric, &fid, 1);
	fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, 1);
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			      &tx_context));
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	ct_close_pair(&pair);
}

static void destroy(void *arg)
{
	int round = (int)(intptr_t)arg;

	if (round < ends_in)
		REQUIRE(!pthread_setspecific(key, (void *)(intptr_t)(round + 1)));
	else
		use_all();
}

static void *run(void *arg)
{
	struct ct_pair first;

	/* What the library keeps of this thread is there before it ends. */
	ct_open_pair(&first, &spec);
	ct_warm_up(&first);
	ct_close_pair(&first);
	REQUIRE(!pthread_setspecific(key, (void *)1));
	return arg;
}

static void in_destructors(void)
{
	REQUIRE(!pthread_key_create(&key, destroy));
	for (ends_in = 1; ends_in <= PTHREAD_DESTRUCTOR_ITERATIONS; ends_in++) {
		pthread_t thread;

		if (!has_own)
			ct_open_pair(&pair, &spec);
		REQUIRE(!pthread_create(&thread, NULL, run, NULL));
		REQUIRE(!pthread_join(thread, NULL));
	}
}

static void variants(void (*test)(void))
{
	static const enum fi_threading levels[] = {
		FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN,
	};

	for (int i = 0; i < 12; i++) {
		spec = (struct ct_spec){
			.wait = FI_WAIT_FD, .threading = levels[i % 3],
			.progress = i / 3 % 2 ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL,
		};
		has_own = i >= 6;
		test();
	}
}

static void thread_ends(void) { variants(in_destructors); }

static void process_ends(void)
{
	pid_t pid = fork();
	int status;

	REQUIRE(pid >= 0);
	if (!pid) {
		if (!has_own)
			ct_open_pair(&pair, &spec);
		atexit(use_all);
		exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void at_exit(void) { variants(process_ends); }

static const struct ct_test tests[] = {
	{ "thread-ends", thread_ends, CT_BOTH | CT_SLOW },
	{ "at-exit", at_exit, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
