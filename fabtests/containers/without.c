/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * without ERROR CALL[,CALL...] COMMAND...: executes the command, in which these system calls fail with
 * EPERM or ENOSYS (seccomp(2)).
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) { #name, SYS_##name }

static const struct {
	const char *name;
	unsigned number;
} known[] = {
	CALL(accept4), CALL(clone3), CALL(epoll_create1), CALL(eventfd2), CALL(fallocate),
	CALL(getpeername), CALL(getrandom), CALL(getsockopt), CALL(madvise), CALL(membarrier),
	CALL(memfd_create), CALL(mlock), CALL(pidfd_getfd), CALL(pidfd_open), CALL(pidfd_send_signal),
	CALL(ppoll), CALL(prlimit64), CALL(process_vm_readv), CALL(process_vm_writev),
	CALL(ptrace), CALL(recvmmsg), CALL(sched_getaffinity), CALL(sched_setaffinity),
	CALL(sendmmsg), CALL(setsockopt), CALL(statx), CALL(sysinfo), CALL(timerfd_create),
	CALL(userfaultfd), CALL(kcmp), CALL(perf_event_open), CALL(io_uring_setup),
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

int main(int argc, char **argv)
{
	struct sock_filter filter[2 + 2 * KNOWN];
	struct sock_fprog program = { .filter = filter };
	unsigned short count = 0;
	unsigned error;

	if (argc < 4)
		return 2;
	error = strcmp(argv[1], "ENOSYS") ? EPERM : ENOSYS;
	filter[count++] = (struct sock_filter)
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
		size_t at = 0;

		while (at < KNOWN && strcmp(known[at].name, name))
			at++;
		if (at == KNOWN) {
			fprintf(stderr, "without: %s\n", name);
			return 2;
		}
		filter[count++] = (struct sock_filter)
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, known[at].number, 0, 1);
		filter[count++] = (struct sock_filter)
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
	}
	filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = count;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("without: seccomp");
		return 2;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 2;
}
