/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Calls without an effect, or with arguments without a meaning, that programs
 * make all the same: fi_cancel of completed operations, flags that do not
 * exist, atomic operations of no elements.
 */
#include <string.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[64], rx_context[64];

/* fi_cancel of an operation that is complete, in progress, or never existed
 * reports nothing. */
static void cancel(void)
{
	struct ct_spec spec = { 0 };
	struct ct_memory out;
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b, idle;

	ct_open_domain(&idle, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep_disabled(&idle, idle.info);
	CHECK(!fi_cancel(&idle.ep->fid, &rx_context[0]), "before-enable");
	ct_close_peer(&idle);

	ct_open_pair(&pair, &spec);
	ct_memory_open(a, &out, 1 << 20, FI_SEND);
	CHECK(!fi_cancel(&a->ep->fid, &tx_context[0]), "unknown");
	CHECK(!fi_cancel(&a->ep->fid, NULL), "null");
	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context[0]));
	ct_done(a, &a->tx, &tx_context[0]);
	ct_done(b, &b->rx, &rx_context[0]);
	CHECK(!fi_cancel(&b->ep->fid, &rx_context[0]), "completed-receive");
	CHECK(!fi_cancel(&a->ep->fid, &tx_context[0]), "completed-send");
	POST(a, fi_send(a->ep, out.data, out.size, out.desc, a->to,
			&tx_context[1]));
	CHECK(!fi_cancel(&a->ep->fid, &tx_context[1]), "send-on-its-way");
	struct ct_memory in;

	ct_memory_open(b, &in, 1 << 20, FI_RECV);
	POST(b, fi_recv(b->ep, in.data, in.size, in.desc, FI_ADDR_UNSPEC,
			&rx_context[1]));
	ct_done(a, &a->tx, &tx_context[1]);
	ct_done(b, &b->rx, &rx_context[1]);
	CHECK(!fi_cancel(&b->ep->fid, &rx_context[1]), "long-receive");
	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[2]));
	CHECK(!fi_cancel(&b->ep->fid, &rx_context[2]), "receive");
	CHECK(ct_error(b, &b->rx).err == FI_ECANCELED, "told");
	CHECK(!fi_cancel(&b->ep->fid, &rx_context[2]), "again");
	CHECK(ct_stays_empty(b, &b->rx), "once");
	ct_memory_close(&in);
	ct_memory_close(&out);
	ct_close_pair(&pair);
}

static void cancel_shared(void)
{
	struct ct_spec spec = { .srx = true };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	CHECK(!fi_cancel(&peer.srx->fid, &rx_context[0]), "unknown");
	OK(fi_recv(peer.srx, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	CHECK(!fi_cancel(&peer.srx->fid, &rx_context[0]), "receive");
	CHECK(ct_error(&peer, &peer.rx).err == FI_ECANCELED, "told");
	CHECK(!fi_cancel(&peer.srx->fid, &rx_context[0]), "again");
	CHECK(!fi_cancel(&peer.ep->fid, &rx_context[0]), "endpoint");
	ct_close_peer(&peer);
}

static void cancel_passive(void)
{
	struct ct_spec spec = { 0 };
	struct fid_pep *pep;
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(fi_passive_ep(peer.fabric, peer.info, &pep, NULL));
	CHECK(!fi_cancel(&pep->fid, &rx_context[0]), "new");
	OK(fi_pep_bind(pep, &peer.eq.fid->fid, 0));
	OK(fi_listen(pep));
	CHECK(!fi_cancel(&pep->fid, &rx_context[0]), "listening");
	OK(fi_close(&pep->fid));
	ct_close_peer(&peer);
}

/* fi_trywait without a wait object returns whether there is something to read.
 */
static void trywait(void)
{
	struct ct_spec spec = { .wait = FI_WAIT_NONE, .counters = FI_RECV };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	struct fid_eq *eq;
	struct fid *fid;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	OK(fi_eq_open(b->fabric, &eq_attr, &eq, NULL));
	fid = &eq->fid;
	CHECK(fi_trywait(b->fabric, &fid, 1) == 0, "events");
	fid = &b->rx.fid->fid;
	CHECK(fi_trywait(b->fabric, &fid, 1) == 0, "queue");
	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context[0]));
	UNTIL(a, fi_trywait(b->fabric, &fid, 1) == -FI_EAGAIN || b->rx.count);
	CHECK(true, "has-something");
	ct_done(b, &b->rx, &rx_context[0]);
	ct_done(a, &a->tx, &tx_context[0]);
	CHECK(fi_trywait(b->fabric, &fid, 1) == 0, "empty-again");
	fid = &b->cntr[CT_CNTR_RECV]->fid;
	fi_cntr_read(b->cntr[CT_CNTR_RECV]);
	UNTIL(a, fi_trywait(b->fabric, &fid, 1) == 0);
	CHECK(true, "counter");
	OK(fi_close(&eq->fid));
	ct_close_pair(&pair);
}

/* There are no flags: they are ignored. */
static void shutdown_flags(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	OK(fi_shutdown(pair.a.ep, ~0ULL));
	REQUIRE(ct_event_of(&pair.b, FI_SHUTDOWN).fid == &pair.b.ep->fid);
	CHECK(true, "shut-down");
	ct_close_pair(&pair);
}

static void multi_by_default(struct fi_info *hints)
{
	hints->rx_attr->op_flags |= FI_MULTI_RECV;
}

/* A receive of tagged messages takes one, also with FI_MULTI_RECV. */
static void tagged_one_each_of(bool by_default)
{
	struct ct_spec spec = {
		.caps = FI_TAGGED | (by_default ? FI_MSG | FI_MULTI_RECV : 0),
		.hint = by_default ? multi_by_default : NULL,
	};
	static unsigned char room[2][1 << 16];
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	ct_open_pair(&pair, &spec);
	for (int early = 0; early < 2; early++) {
		for (int i = 0; !early && i < 2; i++) {
			POST(a, fi_tinject(a->ep, i ? "two" : "one", 3, a->to, 7));
		}
		if (!early)
			ct_stays_empty(b, &b->rx);
		for (int i = 0; i < 2; i++) {
			struct iovec iov = { room[i], sizeof(room[i]) };
			struct fi_msg_tagged msg = {
				.msg_iov = &iov, .iov_count = 1, .tag = 7,
				.addr = FI_ADDR_UNSPEC,
				.context = &rx_context[i],
			};

			if (!by_default)
				POST(b, fi_trecvmsg(b->ep, &msg, FI_MULTI_RECV));
			else if (i)
				POST(b, fi_trecvv(b->ep, &iov, NULL, 1,
						  FI_ADDR_UNSPEC, 7, 0,
						  &rx_context[i]));
			else
				POST(b, fi_trecv(b->ep, iov.iov_base,
						 iov.iov_len, NULL,
						 FI_ADDR_UNSPEC, 7, 0,
						 &rx_context[i]));
		}
		for (int i = 0; early && i < 2; i++)
			POST(a, fi_tinject(a->ep, i ? "two" : "one", 3, a->to, 7));
		for (int i = 0; i < 2; i++) {
			struct ct_completion done =
				ct_done(b, &b->rx, &rx_context[i]);

			REQUIRE(done.len == 3 && done.buf == room[i]);
			REQUIRE(!memcmp(room[i], i ? "two" : "one", 3));
		}
		CHECK(ct_stays_empty(b, &b->rx), early ? "early" : "late");
	}
	ct_close_pair(&pair);
}

static void tagged_one_each(void)
{
	tagged_one_each_of(false);
}

static void tagged_one_each_by_default(void)
{
	tagged_one_each_of(true);
}

/* Access flags and flags of regions without a meaning are ignored. */
static void regions(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	static unsigned char data[64];
	struct ct_memory local;
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	struct iovec iov = { data, sizeof(data) };

	ct_open_pair(&pair, &spec);
	ct_memory_open(a, &local, 64, FI_WRITE);
	for (int bit = -2; bit < 64; bit++) {
		uint64_t bits = bit == -2 ? ~0ULL : bit == -1 ? 0 : 1ULL << bit;
		uint64_t access = bits | FI_REMOTE_WRITE;
		/* These have a meaning of their own, or ask for more. */
		uint64_t flags = bits & ~(FI_RMA_EVENT | FI_MR_DMABUF |
					  FI_HMEM_DEVICE_ONLY |
					  FI_MR_SINGLE_USE | FI_RMA_PMEM |
					  FI_COLLECTIVE);

		for (int form = 0; form < 3; form++) {
			struct fi_mr_attr attr = {
				.mr_iov = &iov, .iov_count = 1,
				.access = access, .offset = 5,
				.requested_key = ct_fresh_key(),
			};
			struct fid_mr *mr;
			uint64_t addr;

			if (form == 0)
				OK(fi_mr_reg(b->domain, data, 64, access, 5,
					     attr.requested_key, flags, &mr,
					     NULL));
			else if (form == 1)
				OK(fi_mr_regv(b->domain, &iov, 1, access, 5,
					      attr.requested_key, flags, &mr,
					      NULL));
			else
				OK(fi_mr_regattr(b->domain, &attr, flags, &mr));
			ct_register_finish(b, mr);
			addr = ct_mr_mode(b) & FI_MR_VIRT_ADDR ?
			       (uintptr_t)data : 0;
			ct_fill(local.data, 64, (unsigned)(bit * 3 + form + 9));
			POST(a, fi_write(a->ep, local.data, 64, local.desc,
					 a->to, addr, fi_mr_key(mr),
					 &tx_context[0]));
			ct_done(a, &a->tx, &tx_context[0]);
			UNTIL(a, ct_holds(data, 64,
					  (unsigned)(bit * 3 + form + 9)));
			OK(fi_close(&mr->fid));
		}
	}
	CHECK(true, "written");
	ct_memory_close(&local);
	ct_close_pair(&pair);
}

/* Atomic operations of no elements complete, and change nothing. */
static void atomics_of_nothing(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_ATOMIC };
	struct ct_memory local, remote;
	struct ct_pair pair;
	struct ct_peer *a = &pair.a;
	uint64_t result[2] = { 5, 5 };
	struct fi_ioc ioc = { NULL, 0 }, out = { result, 0 };
	void *context = &tx_context[0];

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_memory_open(a, &local, 64, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_fill(remote.data, 64, 3);
	ioc.addr = local.data;
	struct fi_rma_ioc target = { remote.addr, 0, remote.key };
	struct fi_msg_atomic msg = {
		.msg_iov = &ioc, .desc = &local.desc, .iov_count = 1,
		.addr = a->to, .rma_iov = &target, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM, .context = context,
	};
	struct fi_msg_atomic swap = msg, none = msg;

	swap.op = FI_CSWAP;
	none.iov_count = none.rma_iov_count = 0;
#define NOTHING(name, call)						\
	do {								\
		POST(a, call);						\
		ct_done(a, &a->tx, context);				\
		CHECK(ct_holds(remote.data, 64, 3), name);		\
	} while (0)
#define AT a->to, remote.addr, remote.key, FI_UINT64
	NOTHING("atomic", fi_atomic(a->ep, local.data, 0, local.desc, AT,
				    FI_SUM, context));
	NOTHING("atomicv", fi_atomicv(a->ep, &ioc, &local.desc, 1, AT, FI_SUM,
				      context));
	NOTHING("no-pieces", fi_atomicv(a->ep, &ioc, &local.desc, 0, AT, FI_SUM,
					context));
	NOTHING("atomicmsg", fi_atomicmsg(a->ep, &msg, FI_COMPLETION));
	NOTHING("no-piecesmsg", fi_atomicmsg(a->ep, &none, FI_COMPLETION));
	NOTHING("fetch", fi_fetch_atomic(a->ep, local.data, 0, local.desc,
					 result, NULL, AT, FI_SUM, context));
	NOTHING("read", fi_fetch_atomic(a->ep, NULL, 0, NULL, result, NULL, AT,
					FI_ATOMIC_READ, context));
	NOTHING("fetchv", fi_fetch_atomicv(a->ep, &ioc, &local.desc, 1, &out,
					   NULL, 1, AT, FI_SUM, context));
	NOTHING("fetchmsg", fi_fetch_atomicmsg(a->ep, &msg, &out, NULL, 1,
					       FI_COMPLETION));
	NOTHING("compare", fi_compare_atomic(a->ep, local.data, 0, local.desc,
					     local.data, local.desc, result,
					     NULL, AT, FI_CSWAP, context));
	NOTHING("comparev", fi_compare_atomicv(a->ep, &ioc, &local.desc, 1,
					       &ioc, &local.desc, 1, &out, NULL,
					       1, AT, FI_CSWAP, context));
	NOTHING("comparemsg", fi_compare_atomicmsg(a->ep, &swap, &ioc,
						   &local.desc, 1, &out, NULL,
						   1, FI_COMPLETION));
	POST(a, fi_inject_atomic(a->ep, local.data, 0, AT, FI_SUM));
	/* A later one that has an effect. */
	memset(local.data, 0, 64);
	NOTHING("inject", fi_atomic(a->ep, local.data, 1, local.desc, AT,
				    FI_SUM, context));
	REQUIRE(result[0] == 5 && result[1] == 5);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* shm ignores flags of calls that have none, as the C library's provider does.
 */
static void unused_flags(void)
{
	struct ct_spec spec = { 0 };
	unsigned char name[CT_NAME];
	struct ct_peer peer;
	fi_addr_t addr;
	int refusal = strcmp(ct_opt.provider, "shm") ? -FI_EINVAL : 0;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(fi_endpoint(peer.domain, peer.info, &peer.ep, &peer));
	CHECK(fi_ep_bind(peer.ep, &peer.eq.fid->fid, FI_SEND) ==
	      (refusal ? -FI_EBADFLAGS : 0), "events");
	CHECK(fi_ep_bind(peer.ep, &peer.av->fid, FI_SEND) ==
	      (refusal ? -FI_EBADFLAGS : 0), "vector");
	if (refusal)
		OK(fi_ep_bind(peer.ep, &peer.av->fid, 0));
	OK(fi_ep_bind(peer.ep, &peer.tx.fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(peer.ep, &peer.rx.fid->fid, FI_RECV));
	OK(fi_enable(peer.ep));
	ct_name(&peer.ep->fid, name, sizeof(name));
	addr = ct_insert(&peer, name);
	CHECK(fi_av_remove(peer.av, &addr, 1, FI_MORE) == refusal, "removal");
	if (refusal)
		OK(fi_av_remove(peer.av, &addr, 1, 0));
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "cancel", cancel, CT_BOTH },
	{ "cancel-shared", cancel_shared, CT_BOTH },
	{ "cancel-passive", cancel_passive, CT_MSG },
	{ "trywait", trywait, CT_BOTH },
	{ "shutdown-flags", shutdown_flags, CT_MSG },
	{ "tagged-one-each", tagged_one_each, CT_BOTH },
	{ "tagged-one-each-by-default", tagged_one_each_by_default, CT_BOTH },
	{ "regions", regions, CT_BOTH },
	{ "atomics-of-nothing", atomics_of_nothing, CT_BOTH },
	{ "unused-flags", unused_flags, CT_RDM },
};

CT_MAIN(tests)
