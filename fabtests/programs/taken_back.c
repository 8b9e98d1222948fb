/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* fi_cancel(3) of operations that wait for a connection to a peer that does not
 * answer: each ends at once with FI_ECANCELED, and only once; of those that
 * have left, or are complete, the call is 0, and they complete as usual. */
#include <rdma/fi_atomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "transfer.h"
#include "wait.h"

enum { LEN = 64 };

static struct fi_context2 context[64], other;

struct bench {
	struct ct_peer peer;
	struct ct_memory memory;
	struct ct_rma rma;
	struct fi_ioc ioc, result, compare;
	struct fi_rma_ioc target;
	struct fi_msg_atomic msg;
};

/* The address of an endpoint that was closed. */
static void find_nobody(struct bench *bench)
{
	struct ct_spec spec = bench->peer.spec;
	struct ct_peer gone;
	unsigned char name[CT_NAME];

	ct_open_single(&gone, &spec);
	ct_name(&gone.ep->fid, name, sizeof(name));
	ct_close_peer(&gone);
	bench->peer.to = ct_insert(&bench->peer, name);
}

/* The peer is waited for as long as the test may take, on a busy machine, too. */
static void be_patient(void)
{
	setenv("FI_TCP_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_SHM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXD_TIMEOUT", "3600000", 1);
}

static void open_bench(struct bench *bench, uint64_t caps)
{
	struct ct_spec spec = { .caps = caps };

	be_patient();
	memset(bench, 0, sizeof(*bench));
	ct_open_single(&bench->peer, &spec);
	bench->peer.spec = spec;
	find_nobody(bench);
	ct_memory_open(&bench->peer, &bench->memory, 4096,
		       FI_SEND | FI_RECV | FI_READ | FI_WRITE);
	bench->rma = (struct ct_rma) {
		.buf = bench->memory.data, .len = LEN,
		.desc = bench->memory.desc, .addr = 0, .key = 1,
	};
	bench->ioc = (struct fi_ioc) { bench->memory.data, 1 };
	bench->result = (struct fi_ioc) { bench->memory.data + 8, 1 };
	bench->compare = (struct fi_ioc) { bench->memory.data + 16, 1 };
	bench->target = (struct fi_rma_ioc) { 0, 1, 1 };
	bench->msg = (struct fi_msg_atomic) {
		.msg_iov = &bench->ioc, .desc = &bench->memory.desc, .iov_count = 1,
		.addr = bench->peer.to, .rma_iov = &bench->target, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM,
	};
}

static void close_bench(struct bench *bench)
{
	ct_memory_close(&bench->memory);
	ct_close_peer(&bench->peer);
}

/* All kinds and forms that have completions. */
enum { SENDS = 2 * CT_SEND_FORMS, RMAS = CT_RMA_FORMS, ATOMICS = 8 };

static ssize_t post_atomic(struct bench *bench, int form, void *context)
{
	struct ct_peer *peer = &bench->peer;
	void *desc = bench->memory.desc;
	unsigned char *data = bench->memory.data;

	bench->msg.context = context;
	switch (form) {
	case 0:
		return fi_atomic(peer->ep, data, 1, desc, peer->to, 0, 1,
				 FI_UINT64, FI_SUM, context);
	case 1:
		return fi_atomicv(peer->ep, &bench->ioc, &desc, 1, peer->to, 0, 1,
				  FI_UINT64, FI_SUM, context);
	case 2:
		return fi_atomicmsg(peer->ep, &bench->msg, FI_COMPLETION);
	case 3:
		return fi_fetch_atomic(peer->ep, data, 1, desc, data + 8, desc,
				       peer->to, 0, 1, FI_UINT64, FI_SUM, context);
	case 4:
		return fi_fetch_atomicv(peer->ep, &bench->ioc, &desc, 1,
					&bench->result, &desc, 1, peer->to, 0, 1,
					FI_UINT64, FI_SUM, context);
	case 5:
		return fi_fetch_atomicmsg(peer->ep, &bench->msg, &bench->result,
					  &desc, 1, FI_COMPLETION);
	case 6:
		return fi_compare_atomic(peer->ep, data, 1, desc, data + 16, desc,
					 data + 8, desc, peer->to, 0, 1,
					 FI_UINT64, FI_CSWAP, context);
	default:
		return fi_compare_atomicv(peer->ep, &bench->ioc, &desc, 1,
					  &bench->compare, &desc, 1,
					  &bench->result, &desc, 1, peer->to, 0, 1,
					  FI_UINT64, FI_CSWAP, context);
	}
}

static ssize_t post_send(struct bench *bench, int form, void *context)
{
	struct ct_message m = {
		.tagged = form >= CT_SEND_FORMS, .tag = 7, .data = 9,
		.buf = bench->memory.data, .len = LEN,
		.desc = bench->memory.desc, .context = context,
		.flags = FI_COMPLETION,
	};

	return ct_send(&bench->peer, form % CT_SEND_FORMS, &m);
}

static ssize_t post_rma(struct bench *bench, int form, void *context)
{
	bench->rma.context = context;
	bench->rma.flags = FI_COMPLETION;
	return ct_rma(&bench->peer, form, &bench->rma);
}

/* Takes one back that was posted. */
static void take_back(struct bench *bench, void *context)
{
	struct ct_completion error;

	OK(fi_cancel(&bench->peer.ep->fid, context));
	error = ct_error(&bench->peer, &bench->peer.tx);
	REQUIRE(error.context == context && error.err == FI_ECANCELED);
	/* Nothing is left to be taken back. */
	OK(fi_cancel(&bench->peer.ep->fid, context));
}

typedef ssize_t post_call(struct bench *bench, int form, void *context);

/* Each form alone, and the one in the middle of several, which then end
 * as what cannot be sent does: here, when they are taken back. */
static void each(struct bench *bench, post_call *post, int form, const char *name)
{
	ssize_t ret = post(bench, form, &context[0]);

	/* It did not wait: it is for the application to try again, as on the
	 * C library, or not offered. */
	if (ret) {
		REQUIRE(ret == -FI_EAGAIN || ret == -FI_ENOSYS || ret == -FI_EOPNOTSUPP);
		return;
	}
	take_back(bench, &context[0]);
	for (int i = 0; i < 3; i++)
		OK(post(bench, form, &context[i]));
	take_back(bench, &context[1]);
	take_back(bench, &context[0]);
	take_back(bench, &context[2]);
	CHECK(ct_stays_empty(&bench->peer, &bench->peer.tx), "%s", name);
}

static void messages(void)
{
	struct bench bench;

	open_bench(&bench, FI_MSG | FI_TAGGED);
	for (int form = 0; form < SENDS; form++)
		if (ct_send_completes(form % CT_SEND_FORMS) &&
		    ct_send_offered(&bench.peer, form % CT_SEND_FORMS))
			each(&bench, post_send, form,
			     form < CT_SEND_FORMS ? "message" : "tagged");
	close_bench(&bench);
}

static void accesses(void)
{
	struct bench bench;

	open_bench(&bench, FI_MSG | FI_RMA);
	for (int form = 0; form < RMAS; form++)
		if (ct_rma_completes(form))
			each(&bench, post_rma, form, ct_rma_name(form));
	close_bench(&bench);
}

static void atomics(void)
{
	struct bench bench;

	open_bench(&bench, FI_MSG | FI_ATOMIC);
	for (int form = 0; form < ATOMICS; form++)
		each(&bench, post_atomic, form, "atomic");
	close_bench(&bench);
}

/* The application takes injected messages for complete. */
static void injected(void)
{
	struct bench bench;

	open_bench(&bench, FI_MSG);
	if (!fi_inject(bench.peer.ep, "hello", 5, bench.peer.to)) {
		OK(fi_cancel(&bench.peer.ep->fid, NULL));
		CHECK(ct_stays_empty(&bench.peer, &bench.peer.tx), "nothing");
	}
	close_bench(&bench);
}

/* A counter says the same as a queue. */
static void counted(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .counters = FI_SEND };
	struct bench bench = { 0 };

	be_patient();
	ct_open_single(&bench.peer, &spec);
	bench.peer.spec = (struct ct_spec) { .caps = FI_MSG };
	find_nobody(&bench);
	if (!fi_send(bench.peer.ep, NULL, 0, NULL, bench.peer.to, &context[0])) {
		take_back(&bench, &context[0]);
		REQUIRE(fi_cntr_readerr(bench.peer.cntr[CT_CNTR_SEND]) == 1);
		REQUIRE(!fi_cntr_read(bench.peer.cntr[CT_CNTR_SEND]));
	}
	ct_close_peer(&bench.peer);
}

/* To a peer that is there: whatever is taken back in time says so and does not
 * arrive; all others arrive, in their order. */
static void racing(void)
{
	enum { ROUNDS = 200, BURST = 8 };
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
	struct ct_pair pair;
	static char in[BURST], out[BURST];
	int cancelled = 0, arrived = 0;

	ct_open_pair(&pair, &spec);
	for (int round = 0; round < ct_times(ROUNDS); round++) {
		bool is_back[BURST] = { false };
		int left = 0;

		for (int i = 0; i < BURST; i++) {
			out[i] = (char)(round + i);
			POST(&pair.a, fi_send(pair.a.ep, &out[i], 1, NULL,
					      pair.a.to, &context[i]));
		}
		for (int i = round % 3; i < BURST; i += 3)
			OK(fi_cancel(&pair.a.ep->fid, &context[i]));
		for (int i = 0; i < BURST; i++) {
			struct ct_completion end = ct_next(&pair.a, &pair.a.tx);
			long at = (struct fi_context2 *)end.context - context;

			REQUIRE(at >= 0 && at < BURST && !is_back[at]);
			REQUIRE(!end.err || end.err == FI_ECANCELED);
			is_back[at] = end.err;
			left += !end.err;
		}
		cancelled += BURST - left;
		arrived += left;
		for (int i = 0; i < BURST; i++) {
			if (is_back[i])
				continue;
			POST(&pair.b, fi_recv(pair.b.ep, &in[i], 1, NULL,
					      FI_ADDR_UNSPEC, &other));
			ct_done(&pair.b, &pair.b.rx, &other);
			REQUIRE(in[i] == out[i]);
		}
	}
	ct_value("%d taken back, %d arrived", cancelled, arrived);
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to, &context[0]));
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &other));
	ct_done(&pair.a, &pair.a.tx, &context[0]);
	ct_done(&pair.b, &pair.b.rx, &other);
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_RDM | CT_SLOW },
	{ "accesses", accesses, CT_RDM | CT_SLOW },
	{ "atomics", atomics, CT_RDM | CT_SLOW },
	{ "injected", injected, CT_RDM },
	{ "counted", counted, CT_RDM },
	{ "racing", racing, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
