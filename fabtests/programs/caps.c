/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* An endpoint does what its capabilities say, and refuses the rest. */
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 context;

enum side { SENDS, RECEIVES, READS, WRITES };

/* Every posting call, to nobody: where the endpoint has the call at all, it
 * finds fault with the rest, or succeeds. */
static uint64_t word, result, compare;
static struct iovec iov = { &word, sizeof(word) };
static struct fi_ioc ioc = { &word, 1 }, result_ioc = { &result, 1 },
		     compare_ioc = { &compare, 1 };
static struct fi_rma_iov rma_iov = { 0, sizeof(word), 1 };
static struct fi_rma_ioc rma_ioc = { 0, 1, 1 };
static const struct fi_msg msg = {
	.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	.context = &context,
};
static const struct fi_msg_tagged tagged = {
	.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	.context = &context,
};
static const struct fi_msg_rma rma = {
	.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	.rma_iov = &rma_iov, .rma_iov_count = 1, .context = &context,
};
static const struct fi_msg_atomic atomic = {
	.msg_iov = &ioc, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	.rma_iov = &rma_ioc, .rma_iov_count = 1, .datatype = FI_UINT64,
	.op = FI_SUM, .context = &context,
};

#define CALL(name, ...)							\
	static ssize_t call_##name(struct fid_ep *ep)			\
	{								\
		return fi_##name(ep, __VA_ARGS__);			\
	}
#define LEN sizeof(word)
#define TO FI_ADDR_UNSPEC

CALL(recv, &word, LEN, NULL, TO, &context)
CALL(recvv, &iov, NULL, 1, TO, &context)
CALL(recvmsg, &msg, 0)
CALL(send, &word, LEN, NULL, TO, &context)
CALL(sendv, &iov, NULL, 1, TO, &context)
CALL(sendmsg, &msg, 0)
CALL(inject, &word, LEN, TO)
CALL(senddata, &word, LEN, NULL, 1, TO, &context)
CALL(injectdata, &word, LEN, 1, TO)
CALL(trecv, &word, LEN, NULL, TO, 1, 0, &context)
CALL(trecvv, &iov, NULL, 1, TO, 1, 0, &context)
CALL(trecvmsg, &tagged, 0)
CALL(tsend, &word, LEN, NULL, TO, 1, &context)
CALL(tsendv, &iov, NULL, 1, TO, 1, &context)
CALL(tsendmsg, &tagged, 0)
CALL(tinject, &word, LEN, TO, 1)
CALL(tsenddata, &word, LEN, NULL, 1, TO, 1, &context)
CALL(tinjectdata, &word, LEN, 1, TO, 1)
CALL(read, &word, LEN, NULL, TO, 0, 1, &context)
CALL(readv, &iov, NULL, 1, TO, 0, 1, &context)
CALL(readmsg, &rma, 0)
CALL(write, &word, LEN, NULL, TO, 0, 1, &context)
CALL(writev, &iov, NULL, 1, TO, 0, 1, &context)
CALL(writemsg, &rma, 0)
CALL(inject_write, &word, LEN, TO, 0, 1)
CALL(writedata, &word, LEN, NULL, 1, TO, 0, 1, &context)
CALL(inject_writedata, &word, LEN, 1, TO, 0, 1)
CALL(atomic, &word, 1, NULL, TO, 0, 1, FI_UINT64, FI_SUM, &context)
CALL(atomicv, &ioc, NULL, 1, TO, 0, 1, FI_UINT64, FI_SUM, &context)
CALL(atomicmsg, &atomic, 0)
CALL(inject_atomic, &word, 1, TO, 0, 1, FI_UINT64, FI_SUM)
CALL(fetch_atomic, &word, 1, NULL, &result, NULL, TO, 0, 1, FI_UINT64, FI_SUM,
     &context)
CALL(fetch_atomicv, &ioc, NULL, 1, &result_ioc, NULL, 1, TO, 0, 1, FI_UINT64,
     FI_SUM, &context)
CALL(fetch_atomicmsg, &atomic, &result_ioc, NULL, 1, 0)
CALL(compare_atomic, &word, 1, NULL, &compare, NULL, &result, NULL, TO, 0, 1,
     FI_UINT64, FI_CSWAP, &context)
CALL(compare_atomicv, &ioc, NULL, 1, &compare_ioc, NULL, 1, &result_ioc, NULL,
     1, TO, 0, 1, FI_UINT64, FI_CSWAP, &context)
CALL(compare_atomicmsg, &atomic, &compare_ioc, NULL, 1, &result_ioc, NULL, 1, 0)

#define ENTRY(name, kind, side) { #name, call_##name, kind, side }

static const struct {
	const char *name;
	ssize_t (*post)(struct fid_ep *ep);
	uint64_t kind;
	enum side side;
} calls[] = {
	ENTRY(recv, FI_MSG, RECEIVES), ENTRY(recvv, FI_MSG, RECEIVES),
	ENTRY(recvmsg, FI_MSG, RECEIVES), ENTRY(send, FI_MSG, SENDS),
	ENTRY(sendv, FI_MSG, SENDS), ENTRY(sendmsg, FI_MSG, SENDS),
	ENTRY(inject, FI_MSG, SENDS), ENTRY(senddata, FI_MSG, SENDS),
	ENTRY(injectdata, FI_MSG, SENDS),
	ENTRY(trecv, FI_TAGGED, RECEIVES), ENTRY(trecvv, FI_TAGGED, RECEIVES),
	ENTRY(trecvmsg, FI_TAGGED, RECEIVES), ENTRY(tsend, FI_TAGGED, SENDS),
	ENTRY(tsendv, FI_TAGGED, SENDS), ENTRY(tsendmsg, FI_TAGGED, SENDS),
	ENTRY(tinject, FI_TAGGED, SENDS), ENTRY(tsenddata, FI_TAGGED, SENDS),
	ENTRY(tinjectdata, FI_TAGGED, SENDS),
	ENTRY(read, FI_RMA, READS), ENTRY(readv, FI_RMA, READS),
	ENTRY(readmsg, FI_RMA, READS), ENTRY(write, FI_RMA, WRITES),
	ENTRY(writev, FI_RMA, WRITES), ENTRY(writemsg, FI_RMA, WRITES),
	ENTRY(inject_write, FI_RMA, WRITES), ENTRY(writedata, FI_RMA, WRITES),
	ENTRY(inject_writedata, FI_RMA, WRITES),
	ENTRY(atomic, FI_ATOMIC, WRITES), ENTRY(atomicv, FI_ATOMIC, WRITES),
	ENTRY(atomicmsg, FI_ATOMIC, WRITES),
	ENTRY(inject_atomic, FI_ATOMIC, WRITES),
	ENTRY(fetch_atomic, FI_ATOMIC, READS),
	ENTRY(fetch_atomicv, FI_ATOMIC, READS),
	ENTRY(fetch_atomicmsg, FI_ATOMIC, READS),
	ENTRY(compare_atomic, FI_ATOMIC, READS),
	ENTRY(compare_atomicv, FI_ATOMIC, READS),
	ENTRY(compare_atomicmsg, FI_ATOMIC, READS),
};

static bool among(uint64_t caps, uint64_t kind, enum side side)
{
	static const uint64_t flag[] = {
		[SENDS] = FI_SEND, [RECEIVES] = FI_RECV,
		[READS] = FI_READ, [WRITES] = FI_WRITE,
	};
	uint64_t all = side <= RECEIVES ? FI_SEND | FI_RECV :
			FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

	if (!(caps & kind))
		return false;
	return !(caps & all) || caps & flag[side];
}

static void check_calls(struct fid_ep *ep, uint64_t caps, const char *what)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		bool offered = among(caps, calls[i].kind, calls[i].side);
		ssize_t ret = calls[i].post(ep);

		CHECK((ret != -FI_ENOSYS) == offered, "%s/%s", what,
		      calls[i].name);
	}
}

static void with(uint64_t caps, const char *what)
{
	struct ct_spec spec = { .caps = caps };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	check_calls(peer.ep, caps, what);
	ct_close_peer(&peer);
}

static void kinds(void)
{
	with(FI_MSG, "msg");
	with(FI_TAGGED, "tagged");
	with(FI_RMA, "rma");
	with(FI_ATOMIC, "atomic");
	with(FI_MSG | FI_RMA, "msg-rma");
}

static void directions(void)
{
	with(FI_MSG | FI_SEND, "send");
	with(FI_TAGGED | FI_RECV, "receive");
	with(FI_RMA | FI_READ, "read");
	with(FI_RMA | FI_WRITE, "write");
	with(FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE, "target");
	with(FI_ATOMIC | FI_READ, "fetch");
	with(FI_ATOMIC | FI_WRITE, "update");
	with(FI_MSG | FI_RMA | FI_SEND, "send-rma");
}

static void ask_for_nothing(struct fi_info *hints)
{
	hints->caps = 0;
}

/* Who asks for nothing in particular gets everything. */
static void everything(void)
{
	struct ct_spec spec = { .hint = ask_for_nothing };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	check_calls(peer.ep, peer.info->caps, "no-hint");
	ct_close_peer(&peer);
}

static void narrow_context(struct fi_info *hints)
{
	hints->tx_attr->caps = FI_MSG;
	hints->rx_attr->caps = FI_TAGGED;
}

/* The two sides of an endpoint may be able to do different things. */
static void contexts(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_TAGGED, .hint = narrow_context,
	};
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	EXPECT(call_tsend(peer.ep), -FI_ENOSYS);
	EXPECT(call_recv(peer.ep), -FI_ENOSYS);
	REQUIRE(call_send(peer.ep) != -FI_ENOSYS);
	OK(call_trecv(peer.ep));
	ct_close_peer(&peer);
}

static void aliases(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct ct_peer peer;
	struct fid_ep *alias = NULL;

	ct_open_single(&peer, &spec);
	OK(fi_ep_alias(peer.ep, &alias, FI_TRANSMIT | FI_COMPLETION));
	check_calls(alias, FI_MSG, "msg");
	OK(fi_close(&alias->fid));
	ct_close_peer(&peer);
}

static void shared_contexts(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .srx = true };
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(call_recv(peer.srx));
	EXPECT(call_trecv(peer.srx), -FI_ENOSYS);
	EXPECT(call_send(peer.srx), -FI_ENOSYS);
	ct_close_peer(&peer);
}

/* Peers, too, do to an endpoint what its capabilities say only. */
static void target(uint64_t remote)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | remote,
	};
	struct ct_pair pair;

	for (int write = 0; write < 2; write++) {
		bool permitted = remote & (write ? FI_REMOTE_WRITE :
						   FI_REMOTE_READ);
		struct ct_memory there, here;
		struct ct_completion done;
		struct ct_rma access = {
			.len = 8, .flags = FI_COMPLETION |
				(write ? FI_DELIVERY_COMPLETE : 0),
			.context = &context,
		};
		struct ct_peer *from = &pair.a, *to = &pair.b;

		ct_open_pair(&pair, &spec);
		ct_warm_up(&pair);
		ct_memory_open(to, &there, 8, FI_REMOTE_READ | FI_REMOTE_WRITE);
		ct_memory_open(from, &here, 8, FI_READ | FI_WRITE);
		memcpy(here.data, "12345678", 8);
		access.buf = here.data;
		access.desc = here.desc;
		access.addr = there.addr;
		access.key = there.key;
		POST(from, ct_rma(from, write ? CT_WRITEMSG : CT_READMSG,
				  &access));
		done = ct_next(from, &from->tx);
		REQUIRE(done.context == &context);
		CHECK(!done.err == permitted, "%s-%s",
		      write ? "write" : "read",
		      permitted ? "permitted" : "refused");
		if (!permitted)
			REQUIRE(write ? !there.data[0] : here.data[0] == '1');
		ct_memory_close(&here);
		ct_memory_close(&there);
		ct_close_pair(&pair);
	}
}

static void readable(void)
{
	target(FI_REMOTE_READ);
}

static void writable(void)
{
	target(FI_REMOTE_WRITE);
}

static void untouchable(void)
{
	target(0);
}

static const struct ct_test tests[] = {
	{ "kinds", kinds, CT_BOTH },
	{ "directions", directions, CT_BOTH },
	{ "everything", everything, CT_BOTH },
	{ "contexts", contexts, CT_BOTH },
	{ "aliases", aliases, CT_BOTH },
	{ "shared-contexts", shared_contexts, CT_BOTH },
	{ "readable", readable, CT_BOTH },
	{ "writable", writable, CT_BOTH },
	{ "untouchable", untouchable, CT_BOTH },
};

CT_MAIN(tests)
