/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * System calls that a sandbox denies (seccomp(2)) to the receiver of a message, to its sender, or to
 * both: the message arrives, or the call or the completion that concerns it reports an error. Nothing
 * waits for ever.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>

#include "check.h"
#include "child.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

/* The longest message. */
#define LONG 100000
/* Microseconds between two looks: the other process may need the processor. */
#define PAUSE 50
/* Milliseconds of one sleep in a read of a queue. */
#define PERIOD 200
/* Their number: one that is short, and two that are long. */
#define MESSAGES 3

enum { RECEIVER = 1, SENDER = 2, BOTH = RECEIVER | SENDER };

/* What is denied to whom. */
static struct {
	unsigned number;
	unsigned error;
	int to;
	bool asleep;	/* reads of queues sleep */
} denied;

/* One of the two processes. */
struct side {
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t to;
	size_t longest;
	int fd;
	int done;
	int failed;	/* the error of a completion */
};

/* What one process tells the other when its endpoint is open, or cannot be opened. */
struct card {
	int err;
	char name[256];
};

/* Warnings in this process's log. */
static int warnings;

static int is_warning(const struct fi_provider *prov, enum fi_log_level level,
		      enum fi_log_subsys subsys, uint64_t flags)
{
	(void)prov, (void)subsys, (void)flags;
	return level == FI_LOG_WARN;
}

static int is_ready(const struct fi_provider *prov, enum fi_log_level level,
		    enum fi_log_subsys subsys, uint64_t flags, uint64_t *showtime)
{
	(void)showtime;
	return is_warning(prov, level, subsys, flags);
}

static void count(const struct fi_provider *prov, enum fi_log_level level,
		  enum fi_log_subsys subsys, const char *func, int line, const char *msg)
{
	(void)func, (void)line, (void)msg;
	warnings += is_warning(prov, level, subsys, 0);
}

static void watch_log(void)
{
	static struct fi_ops_log ops = {
		.size = sizeof(ops), .enabled = is_warning, .ready = is_ready, .log = count,
	};
	static struct fid_logging log = { .ops = &ops };

	OK(fi_import_log(CT_API_VERSION, 0, &log));
}

/* From now on this process's calls of this number fail. */
static void deny(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied.number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | denied.error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]), .filter = filter,
	};

	REQUIRE(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	REQUIRE(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Returns the error of the first call that fails. */
static int open_side(struct side *side, struct card *card)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = denied.asleep ? FI_WAIT_UNSPEC : FI_WAIT_NONE,
	};
	struct fi_av_attr av = { .type = FI_AV_UNSPEC };
	struct fi_info *hints = ct_hints(&spec), *info = NULL;
	const char *node = ct_opt.source;
	size_t len = sizeof(card->name);
	int ret;

	if ((ret = fi_getinfo(CT_API_VERSION, node, NULL, node ? FI_SOURCE : 0, hints, &info)))
		return ret;
	side->longest = info->ep_attr->max_msg_size < LONG ? info->ep_attr->max_msg_size : LONG;
	if ((ret = fi_fabric(info->fabric_attr, &side->fabric, NULL)) ||
	    (ret = fi_domain(side->fabric, info, &side->domain, NULL)) ||
	    (ret = fi_cq_open(side->domain, &cq, &side->cq, NULL)) ||
	    (ret = fi_av_open(side->domain, &av, &side->av, NULL)) ||
	    (ret = fi_endpoint(side->domain, info, &side->ep, NULL)) ||
	    (ret = fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV)) ||
	    (ret = fi_ep_bind(side->ep, &side->av->fid, 0)) ||
	    (ret = fi_enable(side->ep)))
		return ret;
	return fi_getname(&side->ep->fid, card->name, &len);
}

/* Takes one completion of the queue; waits for it so long, in milliseconds. */
static void look(struct side *side, int timeout)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = denied.asleep ? fi_cq_sread(side->cq, &entry, 1, NULL, timeout) :
				      fi_cq_read(side->cq, &entry, 1);

	if (ret == 1) {
		side->done++;
	} else if (ret == -FI_EAVAIL) {
		EXPECT(fi_cq_readerr(side->cq, &failed, 0), 1);
		side->failed = failed.err;
	} else if (ret == -FI_EAGAIN) {
		usleep(PAUSE);
	} else {
		/* The wait is denied. */
		side->failed = (int)-ret;
	}
}

static char byte_of(size_t len)
{
	return (char)('a' + len % 7);
}

/* Sends a message, and tells the other process what that came to. */
static int sends(struct side *side, size_t len)
{
	static struct fi_context2 context;
	static char out[LONG];
	char posted;
	int err;

	ct_hear(side->fd, &posted, 1);
	memset(out, byte_of(len), len);
	CT_UNTIL((err = (int)-fi_send(side->ep, out, len, NULL, side->to, &context)) != FI_EAGAIN,
		 look(side, 0));
	if (!err) {
		CT_UNTIL(side->done || side->failed, look(side, PERIOD));
		err = side->failed;
	}
	side->done = 0;
	ct_tell(side->fd, &err, sizeof(err));
	return err;
}

/* Receives it. Returns the error of either side, which is 0 if the data is here. */
static int receives(struct side *side, size_t len)
{
	static struct fi_context2 context;
	static char in[LONG];
	int err = 0;
	bool heard = false;

	memset(in, 0, len);
	OK(fi_recv(side->ep, in, len, NULL, FI_ADDR_UNSPEC, &context));
	ct_tell(side->fd, "p", 1);
	/* The receive stays posted where the send has failed. */
	CT_UNTIL((side->done && heard) || side->failed || err,
		 look(side, PERIOD);
		 heard = heard || recv(side->fd, &err, sizeof(err), MSG_DONTWAIT) == sizeof(err));
	if (!heard)
		ct_hear(side->fd, &err, sizeof(err));
	if (side->failed || err)
		return side->failed ? side->failed : err;
	side->done = 0;
	for (size_t i = 0; i < len; i++)
		REQUIRE(in[i] == byte_of(len));
	return 0;
}

/* One of the two processes. */
static void take_part(int fd, int role)
{
	static struct side side;
	struct card own = { 0 }, other;

	side.fd = fd;
	watch_log();
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "1000", 1));
	REQUIRE(!setenv("FI_SOCKETS_CONNECT_TIMEOUT", "1000", 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", "1000", 1));
	REQUIRE(!setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "1000", 1));
	REQUIRE(!setenv("FI_OFI_RXD_TIMEOUT", "1000", 1));
	if (denied.to & role)
		deny();
	own.err = open_side(&side, &own);
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, &other, sizeof(other));
	/* Whoever is denied nothing has no reason to fail. */
	if (!(denied.to & role))
		OK(own.err);
	if (own.err || other.err)
		return;
	EXPECT(fi_av_insert(side.av, other.name, 1, &side.to, 0, NULL), 1);
	for (int i = 0; i < MESSAGES; i++) {
		size_t len = i ? side.longest : 8;
		int err = i % 2 == (role == SENDER) ? receives(&side, len) : sends(&side, len);

		if (err) {
			/* Only this process knows why. */
			if (denied.to == role && i % 2 == (role == SENDER))
				REQUIRE(side.failed || warnings);
			return;
		}
	}
	OK(fi_close(&side.ep->fid));
}

static void child(int fd)
{
	take_part(fd, RECEIVER);
}

static void run(unsigned number, unsigned error, int to, bool asleep)
{
	struct ct_child receiver;

	denied.number = number;
	denied.error = error;
	denied.to = to;
	denied.asleep = asleep;
	receiver = ct_spawn(child);
	ct_begin(&receiver);
	take_part(receiver.fd, SENDER);
	ct_join(&receiver);
}

#define EACH(_)								\
	_(getrandom) _(fcntl) _(getsockopt) _(setsockopt) _(memfd_create) \
	_(ftruncate) _(fallocate) _(process_vm_readv) _(process_vm_writev) \
	_(pidfd_open) _(pidfd_send_signal) _(membarrier) _(epoll_create1) \
	_(eventfd2) _(timerfd_create) _(timerfd_settime) _(prlimit64) \
	_(sysinfo) _(statx) _(madvise) _(recvmmsg) _(sendmmsg) _(accept4) \
	_(getsockname) _(getpeername) _(socketpair) _(ppoll) \
	_(sched_getaffinity) _(gettid) _(readlink) _(pread64) _(pwrite64) \
	_(userfaultfd) _(clone3)

#define TESTS(name)							\
	static void receiver_##name(void)				\
	{								\
		run(SYS_##name, EPERM, RECEIVER, false);		\
	}								\
	static void sender_##name(void)					\
	{								\
		run(SYS_##name, EPERM, SENDER, false);			\
	}								\
	static void both_##name(void)					\
	{								\
		run(SYS_##name, EPERM, BOTH, false);			\
	}								\
	static void unknown_##name(void)				\
	{								\
		run(SYS_##name, ENOSYS, BOTH, false);			\
	}								\
	static void asleep_##name(void)					\
	{								\
		run(SYS_##name, EPERM, BOTH, true);			\
	}
EACH(TESTS)

#define ROWS(name)							\
	{ "receiver/" #name, receiver_##name, CT_RDM },			\
	{ "sender/" #name, sender_##name, CT_RDM },			\
	{ "both/" #name, both_##name, CT_RDM },				\
	/* As in a kernel that does not have it. */			\
	{ "unknown/" #name, unknown_##name, CT_RDM },			\
	{ "asleep/" #name, asleep_##name, CT_RDM },

static const struct ct_test tests[] = { EACH(ROWS) };

CT_MAIN(tests)
