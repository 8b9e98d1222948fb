/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * System calls that a sandbox denies (seccomp(2)): the provider does without, or a call that opens
 * something fails, or the message does. Nothing waits for ever.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

/* From now on this process's calls of this number fail with EPERM. */
static void deny(unsigned number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]), .filter = filter,
	};

	REQUIRE(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		SKIP("seccomp(2): %s", strerror(errno));
}

struct side {
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t to;
	char name[256];
};

/* Returns the error of the first call that fails. */
static int open_side(struct side *side, struct fid_fabric *fabric, struct fi_info *info)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = FI_AV_UNSPEC };
	size_t len = sizeof(side->name);
	int ret;

	if ((ret = fi_domain(fabric, info, &side->domain, NULL)) ||
	    (ret = fi_cq_open(side->domain, &cq, &side->cq, NULL)) ||
	    (ret = fi_av_open(side->domain, &av, &side->av, NULL)) ||
	    (ret = fi_endpoint(side->domain, info, &side->ep, NULL)) ||
	    (ret = fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV)) ||
	    (ret = fi_ep_bind(side->ep, &side->av->fid, 0)) ||
	    (ret = fi_enable(side->ep)) ||
	    (ret = fi_getname(&side->ep->fid, side->name, &len)))
		return ret;
	return 0;
}

/* Takes one completion of a queue, if there is one; returns whether it was an error. */
static bool look(struct side *side, int *count)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = fi_cq_read(side->cq, &entry, 1);

	if (ret == 1)
		++*count;
	if (ret != -FI_EAVAIL)
		return false;
	EXPECT(fi_cq_readerr(side->cq, &failed, 0), 1);
	return true;
}

static void pass(struct side *from, struct side *to, size_t len)
{
	static struct fi_context2 tx, rx;
	static char out[100000], in[sizeof(out)];
	int done = 0;
	bool failed = false;
	ssize_t ret = -FI_EAGAIN;

	memset(out, 'a', len);
	memset(in, 0, len);
	OK(fi_recv(to->ep, in, len, NULL, FI_ADDR_UNSPEC, &rx));
	CT_UNTIL(ret != -FI_EAGAIN,
		 ret = fi_send(from->ep, out, len, NULL, from->to, &tx);
		 look(to, &done));
	if (ret)
		return;
	/* The receive stays posted where the send has failed. */
	CT_UNTIL(done == 2 || failed, failed = look(from, &done) || look(to, &done));
	REQUIRE(failed || !memcmp(in, out, len));
}

static void run(unsigned number)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct fid_fabric *fabric = NULL;
	struct side a = { 0 }, b = { 0 };
	struct fi_info *hints = ct_hints(&spec), *info = NULL;
	const char *node = ct_opt.source;

	deny(number);
	if (fi_getinfo(CT_API_VERSION, node, NULL, node ? FI_SOURCE : 0, hints, &info) ||
	    fi_fabric(info->fabric_attr, &fabric, NULL) || open_side(&a, fabric, info) ||
	    open_side(&b, fabric, info))
		return;
	if (fi_av_insert(a.av, b.name, 1, &a.to, 0, NULL) != 1 ||
	    fi_av_insert(b.av, a.name, 1, &b.to, 0, NULL) != 1)
		return;
	pass(&a, &b, 8);
	pass(&b, &a, 100000);
	pass(&a, &b, 100000);
	OK(fi_close(&a.ep->fid));
	OK(fi_close(&b.ep->fid));
}

#define DENIED(name)							\
	static void name(void)						\
	{								\
		run(SYS_##name);					\
	}
#define EACH(_)								\
	_(getrandom) _(fcntl) _(getsockopt) _(setsockopt) _(memfd_create) \
	_(ftruncate) _(fallocate) _(process_vm_readv) _(process_vm_writev) \
	_(pidfd_open) _(membarrier) _(epoll_create1) _(eventfd2) _(timerfd_create) \
	_(timerfd_settime) _(prlimit64) _(sysinfo) _(statx) _(madvise) _(recvmmsg) \
	_(sendmmsg) _(accept4) _(getsockname) _(getpeername) _(socketpair) _(ppoll) \
	_(sched_getaffinity) _(gettid) _(readlink) _(pread64) _(pwrite64)

EACH(DENIED)

#define ROW(name) { #name, name, CT_RDM | CT_SLOW },

static const struct ct_test tests[] = { EACH(ROW) };

CT_MAIN(tests)
