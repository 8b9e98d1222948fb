/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An endpoint carries out every operation, in both directions, whichever
 * capabilities it was opened with: only the key, the range and the access of a
 * region decide over remote access.
 */
#include <rdma/fi_atomic.h>
#include <string.h>

#include "bench.h"
#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LEN 24			/* whole elements of FI_UINT64 */
#define COUNT (LEN / sizeof(uint64_t))
#define DATA 0x5a		/* immediate data */

static struct fi_context2 tx_context, rx_context;

/* A pair that were opened alike, with memory at both. */
/* Every operation moves other bytes. */
static unsigned round;

static void setup(struct ct_bench *bench, const struct ct_spec *spec)
{
	uint64_t local = FI_SEND | FI_RECV | FI_READ | FI_WRITE;

	ct_open_bench(bench, spec, &(struct ct_room) {
		.local = LEN, .result = LEN, .compare = LEN, .remote = LEN,
		.local_access = local,
		.remote_access = local | FI_REMOTE_READ | FI_REMOTE_WRITE,
	});
	round = 0;
}

/* Whether a call was accepted; if not, that is one failed check. */
static bool accepted(ssize_t ret, const char *what, const char *kind,
		     const char *name)
{
	return CHECK(!ret, "%s/%s%s", what, kind, name);
}

static void messages(struct ct_bench *bench, const char *what, bool tagged)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;

	for (int form = 0; form < CT_SEND_FORMS; form++) {
		enum ct_recv_form how = form % CT_RECV_FORMS;
		struct ct_message send = {
			.tagged = tagged, .buf = bench->local.data, .len = LEN,
			.desc = bench->local.desc, .tag = 7, .data = DATA,
			.context = &tx_context,
		}, receive = {
			.tagged = tagged, .buf = bench->remote.data, .len = LEN,
			.desc = bench->remote.desc, .tag = 7,
			.from = FI_ADDR_UNSPEC, .context = &rx_context,
		};
		const char *kind = tagged ? "t" : "";
		struct ct_completion done;

		ct_fill(bench->local.data, LEN, ++round);
		if (!accepted(CT_POST(b, ct_recv(b, how, &receive)), what, kind,
			      ct_recv_name(how)) ||
		    !accepted(CT_POST(a, ct_send(a, form, &send)), what, kind,
			      ct_send_name(form)))
			return;
		done = ct_done(b, &b->rx, &rx_context);
		REQUIRE(!ct_send_has_data(form) || done.data == DATA);
		REQUIRE(ct_holds(bench->remote.data, LEN, round));
		if (ct_send_completes(form))
			ct_done(a, &a->tx, &tx_context);
	}
}

static void accesses(struct ct_bench *bench, const char *what)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;

	for (int form = 0; form < CT_RMA_FORMS; form++) {
		bool reads = ct_rma_is_read(form);
		struct ct_memory *from = reads ? &bench->remote : &bench->local;
		struct ct_memory *to = reads ? &bench->local : &bench->remote;
		struct ct_rma access = {
			.buf = bench->local.data, .len = LEN,
			.desc = bench->local.desc, .addr = bench->remote.addr,
			.key = bench->remote.key, .data = DATA,
			.context = &tx_context,
		};

		ct_fill(from->data, LEN, ++round);
		if (!accepted(CT_POST(a, ct_rma(a, form, &access)), what, "",
			      ct_rma_name(form)))
			continue;
		if (ct_rma_completes(form))
			ct_done(a, &a->tx, &tx_context);
		UNTIL(a, ct_holds(to->data, LEN, round));
		if (ct_rma_has_data(form))
			REQUIRE(ct_done(b, &b->rx, NULL).data == DATA);
	}
}

enum atomic_form { PLAIN, VECTOR, MESSAGE, INJECT, ATOMIC_FORMS };
enum family { UPDATE, FETCH, COMPARE, FAMILIES };

static const char *const families[] = { "atomic", "fetch", "compare" };
static const char *const forms[] = { "", "-vector", "-message", "-inject" };

static ssize_t post_atomic(struct ct_bench *bench, enum family family,
			   enum atomic_form form, enum fi_op op)
{
	struct ct_peer *a = &bench->pair.a;
	struct ct_memory *from = &bench->local, *to = &bench->result;
	struct ct_memory *with = &bench->compare, *at = &bench->remote;
	struct fi_ioc ioc = { from->data, COUNT }, old = { to->data, COUNT };
	struct fi_ioc compare = { with->data, COUNT };
	struct fi_rma_ioc remote = { at->addr, COUNT, at->key };
	struct fi_msg_atomic msg = {
		.msg_iov = &ioc, .desc = &from->desc, .iov_count = 1,
		.addr = a->to, .rma_iov = &remote, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = op, .context = &tx_context,
	};

	switch (form * FAMILIES + (int)family) {
	case PLAIN * FAMILIES + UPDATE:
		return fi_atomic(a->ep, from->data, COUNT, from->desc, a->to,
				 at->addr, at->key, FI_UINT64, op, &tx_context);
	case VECTOR * FAMILIES + UPDATE:
		return fi_atomicv(a->ep, &ioc, &from->desc, 1, a->to, at->addr,
				  at->key, FI_UINT64, op, &tx_context);
	case MESSAGE * FAMILIES + UPDATE:
		return fi_atomicmsg(a->ep, &msg, 0);
	case INJECT * FAMILIES + UPDATE:
		return fi_inject_atomic(a->ep, from->data, COUNT, a->to,
					at->addr, at->key, FI_UINT64, op);
	case PLAIN * FAMILIES + FETCH:
		return fi_fetch_atomic(a->ep, from->data, COUNT, from->desc,
				       to->data, to->desc, a->to, at->addr,
				       at->key, FI_UINT64, op, &tx_context);
	case VECTOR * FAMILIES + FETCH:
		return fi_fetch_atomicv(a->ep, &ioc, &from->desc, 1, &old,
					&to->desc, 1, a->to, at->addr, at->key,
					FI_UINT64, op, &tx_context);
	case MESSAGE * FAMILIES + FETCH:
		return fi_fetch_atomicmsg(a->ep, &msg, &old, &to->desc, 1, 0);
	case PLAIN * FAMILIES + COMPARE:
		return fi_compare_atomic(a->ep, from->data, COUNT, from->desc,
					 with->data, with->desc, to->data,
					 to->desc, a->to, at->addr, at->key,
					 FI_UINT64, op, &tx_context);
	case VECTOR * FAMILIES + COMPARE:
		return fi_compare_atomicv(a->ep, &ioc, &from->desc, 1, &compare,
					  &with->desc, 1, &old, &to->desc, 1,
					  a->to, at->addr, at->key, FI_UINT64,
					  op, &tx_context);
	default:
		return fi_compare_atomicmsg(a->ep, &msg, &compare, &with->desc,
					    1, &old, &to->desc, 1, 0);
	}
}

/* The value is replaced, after a comparison that holds. */
static void atomics(struct ct_bench *bench, const char *what)
{
	struct ct_peer *a = &bench->pair.a;
	size_t count;

	if (!CHECK(!fi_atomicvalid(a->ep, FI_UINT64, FI_SUM, &count),
		   "%s/valid", what))
		return;
	for (int family = 0; family < FAMILIES; family++) {
		enum fi_op op = family == COMPARE ? FI_CSWAP :
						    FI_ATOMIC_WRITE;

		for (int form = 0; form < ATOMIC_FORMS; form++) {
			unsigned before = ++round;

			if (form == INJECT && family != UPDATE)
				continue;
			ct_fill(bench->remote.data, LEN, before);
			ct_fill(bench->compare.data, LEN, before);
			ct_fill(bench->local.data, LEN, ++round);
			if (!accepted(CT_POST(a, post_atomic(bench, family, form,
							     op)),
				      what, families[family], forms[form]))
				continue;
			if (form != INJECT)
				ct_done(a, &a->tx, &tx_context);
			UNTIL(a, ct_holds(bench->remote.data, LEN,
					  round));
			if (family != UPDATE)
				REQUIRE(ct_holds(bench->result.data, LEN,
						 before));
		}
	}
}

static void everything(struct ct_bench *bench, const char *what)
{
	messages(bench, what, false);
	messages(bench, what, true);
	accesses(bench, what);
	atomics(bench, what);
}

static void with(const struct ct_spec *spec, const char *what)
{
	struct ct_bench bench;

	setup(&bench, spec);
	everything(&bench, what);
	ct_close_bench(&bench);
}

static void with_caps(uint64_t caps, const char *what)
{
	with(&(struct ct_spec) { .caps = caps }, what);
}

static void kinds(void)
{
	with_caps(FI_MSG, "msg");
	with_caps(FI_TAGGED, "tagged");
	with_caps(FI_RMA, "rma");
	with_caps(FI_ATOMIC, "atomic");
	with_caps(FI_MSG | FI_RMA, "msg-rma");
	with_caps(FI_MSG | FI_TAGGED, "msg-tagged");
}

static void directions(void)
{
	with_caps(FI_MSG | FI_SEND, "send");
	with_caps(FI_TAGGED | FI_RECV, "receive");
	with_caps(FI_RMA | FI_READ, "read");
	with_caps(FI_RMA | FI_WRITE, "write");
	with_caps(FI_RMA | FI_READ | FI_WRITE, "initiator");
	with_caps(FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE,
		  "target");
	with_caps(FI_ATOMIC | FI_READ, "fetch");
	with_caps(FI_ATOMIC | FI_WRITE, "update");
	with_caps(FI_MSG | FI_RMA | FI_SEND, "send-rma");
	with_caps(FI_TAGGED | FI_RMA | FI_REMOTE_READ, "tagged-readable");
}

static void directions_alone(void)
{
	with_caps(FI_SEND, "send");
	with_caps(FI_RECV, "receive");
	with_caps(FI_READ | FI_WRITE, "initiator");
	with_caps(FI_REMOTE_READ | FI_REMOTE_WRITE, "target");
}

static void ask_for_nothing(struct fi_info *hints)
{
	hints->caps = 0;
}

static void nothing(void)
{
	with(&(struct ct_spec) { .hint = ask_for_nothing }, "no-hint");
}

/* Capabilities of contexts, in hints and in the attributes with which an
 * endpoint is opened. */
static const struct {
	const char *name;
	uint64_t tx, rx;
} contexts[] = {
	{ "send-only", FI_SEND, 0 },
	{ "receive-only", 0, FI_RECV },
	{ "one-each", FI_MSG, FI_TAGGED },
	{ "directions", FI_MSG | FI_SEND, FI_MSG | FI_RECV },
	{ "read-only", FI_RMA | FI_READ, FI_RMA | FI_REMOTE_READ },
	{ "directed", 0, FI_DIRECTED_RECV },
};
static size_t which;

static void narrow(struct fi_info *info)
{
	info->tx_attr->caps = contexts[which].tx;
	info->rx_attr->caps = contexts[which].rx;
}

static void narrow_hints(void)
{
	for (which = 0; which < sizeof(contexts) / sizeof(contexts[0]); which++) {
		/* Connected endpoints have one peer. */
		if (ct_opt.type == FI_EP_MSG &&
		    contexts[which].rx & FI_DIRECTED_RECV)
			continue;
		with(&(struct ct_spec) {
			.caps = FI_MSG | FI_TAGGED | FI_RMA, .hint = narrow,
		}, contexts[which].name);
	}
}

static void narrow_info(void)
{
	for (which = 0; which < sizeof(contexts) / sizeof(contexts[0]); which++)
		with(&(struct ct_spec) {
			.caps = FI_MSG | FI_TAGGED | FI_RMA, .change = narrow,
		}, contexts[which].name);
}

/* Aliases, too. */
static void aliases(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SEND };
	struct fid_ep *original, *alias = NULL;
	struct ct_bench bench;

	setup(&bench, &spec);
	original = bench.pair.a.ep;
	OK(fi_ep_alias(original, &alias, FI_TRANSMIT | FI_COMPLETION));
	bench.pair.a.ep = alias;
	everything(&bench, "alias");
	bench.pair.a.ep = original;
	OK(fi_close(&alias->fid));
	ct_close_bench(&bench);
}

static void narrow_receives(struct fi_info *info)
{
	info->rx_attr->caps = FI_MSG;
}

/* A shared context receives messages of both kinds, and sends none. */
static void shared_contexts(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG, .srx = true, .hint = narrow_receives,
	};
	struct ct_message message = {
		.buf = &rx_context, .len = LEN, .from = FI_ADDR_UNSPEC,
		.tagged = true, .context = &rx_context,
	};
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	for (int form = 0; form < CT_RECV_FORMS; form++) {
		peer.ep = peer.srx;
		message.tagged = !message.tagged;
		OK(ct_recv(&peer, form, &message));
		message.tagged = !message.tagged;
		OK(ct_recv(&peer, form, &message));
		peer.ep = NULL;
	}
	EXPECT(fi_send(peer.srx, &rx_context, LEN, NULL, 0, &tx_context),
	       -FI_ENOSYS);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "kinds", kinds, CT_BOTH },
	{ "directions", directions, CT_BOTH },
	{ "directions-alone", directions_alone, CT_BOTH },
	{ "nothing", nothing, CT_BOTH },
	{ "narrow-hints", narrow_hints, CT_BOTH },
	{ "narrow-info", narrow_info, CT_BOTH },
	{ "aliases", aliases, CT_BOTH },
	{ "shared-contexts", shared_contexts, CT_BOTH },
};

CT_MAIN(tests)
