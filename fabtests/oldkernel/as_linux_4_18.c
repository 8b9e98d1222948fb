/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * as_linux_4_18 PROGRAM [ARGUMENT...]
 *
 * Runs a program as if the kernel were Linux 4.18: system calls that are newer fail with ENOSYS, and
 * newer flags and options of older ones with what that kernel answers (seccomp(2)).
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The last system call of 4.18, in the numbering of both architectures. */
#define NEWEST __NR_rseq

/* The C library of the machine may be too old for these. */
#define NEWER_MEMFD 0x18	/* MFD_NOEXEC_SEAL and MFD_EXEC: Linux 6.3 */
#define USER_MODE_ONLY 1	/* of userfaultfd(2): Linux 5.11 */
#define SEAL_FUTURE_WRITE 0x10	/* of F_ADD_SEALS: Linux 5.1 */
#define ADD_SEALS 1033
#define UDP_LEVEL 17
#define GRO 104			/* UDP_GRO: Linux 5.0 */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* The lower half of an argument, which is all of an int. */
#define ARGUMENT(n) LOAD(args[n])
#define EQUAL(value, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise)
#define HAS(bits, otherwise) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, otherwise)
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv)
{
	struct sock_filter filter[] = {
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1),
		FAIL(ENOSYS),
		EQUAL(__NR_memfd_create, 4), ARGUMENT(1), HAS(NEWER_MEMFD, 1), FAIL(EINVAL), ALLOW,
		EQUAL(__NR_userfaultfd, 4), ARGUMENT(0), HAS(USER_MODE_ONLY, 1), FAIL(EINVAL), ALLOW,
		EQUAL(__NR_fcntl, 6), ARGUMENT(1), EQUAL(ADD_SEALS, 3), ARGUMENT(2), HAS(SEAL_FUTURE_WRITE, 1),
		FAIL(EINVAL), ALLOW,
		EQUAL(__NR_setsockopt, 6), ARGUMENT(1), EQUAL(UDP_LEVEL, 3), ARGUMENT(2), EQUAL(GRO, 1),
		FAIL(ENOPROTOOPT), ALLOW,
		ALLOW,
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	if (argc < 2) {
		fprintf(stderr, "usage: as_linux_4_18 PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("as_linux_4_18: seccomp");
		return 77;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
