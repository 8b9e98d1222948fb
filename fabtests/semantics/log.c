/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Writes to the log as a provider does: each level in several subsystems, and
 * texts of unusual forms. With an argument, the log of a child of fork(2) whose
 * parent writes to it in other threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

enum { FORKS = 200, WRITERS = 3 };

static struct fi_provider self = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(1, 5),
	.name = "semantics",
};
static volatile int stop;

static void write_all(void)
{
	static const enum fi_log_subsys subsystems[] = {
		FI_LOG_CORE, FI_LOG_FABRIC, FI_LOG_DOMAIN, FI_LOG_EP_CTRL,
		FI_LOG_EP_DATA, FI_LOG_AV, FI_LOG_CQ, FI_LOG_EQ, FI_LOG_MR,
		FI_LOG_CNTR,
	};
	char many[900];

	for (size_t i = 0; i < sizeof(subsystems) / sizeof(subsystems[0]); i++) {
		FI_WARN(&self, subsystems[i], "warning %zu\n", i);
		FI_TRACE(&self, subsystems[i], "trace %zu\n", i);
		FI_INFO(&self, subsystems[i], "information %zu\n", i);
		FI_DBG(&self, subsystems[i], "debug %zu\n", i);
	}
	FI_WARN(&self, FI_LOG_CORE, "%s %d%% %5.2f %p\n", "text", 7, 1.5,
		(void *)0x10);
	FI_WARN(&self, FI_LOG_CORE, "\n");
	FI_WARN(&self, FI_LOG_CORE, "two\nlines\n");
	memset(many, 'x', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	FI_WARN(&self, FI_LOG_CORE, "%s|\n", many);
	for (int i = 0; i < 3; i++)
		FI_WARN_SPARSE(&self, FI_LOG_CORE, "sparse %d\n", i);
	FI_WARN_ONCE(&self, FI_LOG_CORE, "once\n");
}

static void *keep_writing(void *arg)
{
	while (!stop)
		FI_WARN(&self, FI_LOG_CORE, "by a thread\n");
	return arg;
}

/* A child inherits no lock that a thread of its parent held. */
static int fork_often(void)
{
	pthread_t writers[WRITERS];

	for (int i = 0; i < WRITERS; i++)
		if (pthread_create(&writers[i], NULL, keep_writing, NULL))
			return 1;
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		if (pid < 0)
			return 1;
		if (!pid) {
			alarm(60);
			FI_WARN(&self, FI_LOG_CORE, "by a child\n");
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status) {
			printf("a child of fork did not end well: %d\n", status);
			_exit(1);
		}
	}
	stop = 1;
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	puts("children write to the log, too");
	return 0;
}

int main(int argc, char **argv)
{
	struct fi_info *info = NULL;

	(void)argv;
	/* The library reads its settings at the first call. */
	if (!fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, NULL, &info))
		fi_freeinfo(info);
	if (argc > 1)
		return fork_often();
	write_all();
	return 0;
}
