/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Messages that the application receives in place, in the mode of the 1.x
 * interface (FI_BUFFERED_RECV): they are reported, and then claimed or
 * discarded. */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_trigger.h>

#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

/* The 2.x headers have neither: fabric.h of 1.x. */
#define BUFFERED_RECV (1ULL << 51)
#define HAS_BUFFERED_RECV FI_VERSION(1, 20)

/* Too long to be sent together with its announcement. */
#define LARGE (1 << 20)
/* Sent in parts by default. */
#define IN_PARTS (40 << 10)
#define SHORT 100

static struct fi_context2 tx_context, claim_context;

static void hint(struct fi_info *hints)
{
	hints->mode |= BUFFERED_RECV;
}

static void open_with(struct ct_pair *pair, struct ct_spec spec)
{
	spec.caps = FI_MSG | FI_TAGGED | spec.caps;
	spec.hint = hint;
	spec.version = HAS_BUFFERED_RECV;
	ct_open_pair(pair, &spec);
	if (!(pair->b.info->mode & BUFFERED_RECV))
		SKIP("receives are not buffered");
}

static void open_buffered(struct ct_pair *pair)
{
	struct ct_spec spec = { 0 };

	open_with(pair, spec);
}

static void *message_of(size_t len, unsigned seed)
{
	unsigned char *bytes = malloc(len ? len : 1);

	REQUIRE(bytes);
	ct_fill(bytes, len, seed);
	return bytes;
}

static void post(struct ct_pair *pair, bool tagged, uint64_t tag, void *bytes,
		 size_t len)
{
	struct ct_message m = {
		.tagged = tagged, .tag = tag, .buf = bytes, .len = len,
		.context = &tx_context,
	};

	POST(&pair->a, ct_send(&pair->a, CT_SEND, &m));
}

/* Returns the report of a message, with its first bytes. */
static struct ct_completion told(struct ct_pair *pair, size_t len,
				 const void *bytes, uint64_t kind)
{
	struct ct_completion c = ct_next(&pair->b, &pair->b.rx);
	struct fi_recv_context *context = c.context;

	REQUIRE(!c.err);
	REQUIRE(context);
	CHECK(context->ep == pair->b.ep, "endpoint");
	CHECK(!context->context, "context");
	CHECK((c.flags & (FI_RECV | FI_MSG | FI_TAGGED)) == (FI_RECV | kind),
	      "flags %#llx", (unsigned long long)c.flags);
	CHECK(!(c.flags & FI_CLAIM), "not claimed yet");
	CHECK(c.len == len, "length %zu", c.len);
	if (!(c.flags & FI_MORE))
		CHECK(!memcmp(c.buf, bytes, len), "bytes");
	return c;
}

static ssize_t give_back(struct ct_pair *pair, struct ct_completion *c,
			 uint64_t flags, void *to, size_t len)
{
	struct ct_message m = {
		.tagged = c->flags & FI_TAGGED, .buf = to, .len = len,
		.flags = flags, .from = FI_ADDR_UNSPEC, .context = c->context,
	};

	return CT_POST(&pair->b, ct_recv(&pair->b, CT_RECVMSG, &m));
}

static void discard(struct ct_pair *pair, struct ct_completion *c)
{
	OK(give_back(pair, c, FI_DISCARD, NULL, 0));
}

/* Claims a message into `room` bytes; returns the completion of the receive. */
static struct ct_completion claim(struct ct_pair *pair,
				  struct ct_completion *c, void *to, size_t room)
{
	struct fi_recv_context *context = c->context;

	context->context = &claim_context;
	OK(give_back(pair, c, FI_CLAIM | FI_COMPLETION, to, room));
	return ct_next(&pair->b, &pair->b.rx);
}

/* A short message is reported completely. */
static void whole(void)
{
	struct ct_pair pair;
	void *bytes = message_of(SHORT, 1);
	struct ct_completion c;

	open_buffered(&pair);
	for (int tagged = 0; tagged < 2; tagged++) {
		post(&pair, tagged, 7, bytes, SHORT);
		c = told(&pair, SHORT, bytes, tagged ? FI_TAGGED : FI_MSG);
		CHECK(!(c.flags & FI_MORE), "more");
		if (tagged)
			CHECK(c.tag == 7, "tag");
		ct_done(&pair.a, &pair.a.tx, &tx_context);
	}
	ct_close_pair(&pair);
	free(bytes);
}

/* A message is claimed or discarded by deferred work (fi_trigger(3)). */
static void deferred(void)
{
	struct ct_spec spec = { .caps = FI_TRIGGER };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *when, *done;
	struct ct_pair pair;
	unsigned char room[SHORT];
	void *bytes = message_of(SHORT, 3);

	open_with(&pair, spec);
	OK(fi_cntr_open(pair.b.domain, &attr, &when, NULL));
	OK(fi_cntr_open(pair.b.domain, &attr, &done, NULL));
	for (int drops = 0; drops < 2; drops++) {
		struct iovec iov = { room, SHORT };
		struct fi_op_tagged op = {
			.ep = pair.b.ep,
			.flags = drops ? FI_DISCARD : FI_CLAIM | FI_COMPLETION,
			.msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC },
		};
		struct fi_deferred_work work = {
			.op_type = FI_OP_TRECV, .op.tagged = &op, .threshold = 1,
			.triggering_cntr = when, .completion_cntr = done,
		};
		struct fi_recv_context *context;
		struct ct_completion c;

		memset(room, 0, sizeof(room));
		OK(fi_cntr_set(when, 0));
		OK(fi_cntr_set(done, 0));
		post(&pair, true, 7, bytes, SHORT);
		c = told(&pair, SHORT, bytes, FI_TAGGED);
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		context = c.context;
		context->context = &claim_context;
		op.msg.context = context;
		OK(fi_control(&pair.b.domain->fid, FI_QUEUE_WORK, &work));
		REQUIRE(ct_stays_empty(&pair.b, &pair.b.rx));
		OK(fi_cntr_add(when, 1));
		UNTIL(&pair.b, fi_cntr_read(done) == 1);
		if (!drops) {
			c = ct_done(&pair.b, &pair.b.rx, &claim_context);
			CHECK(c.flags & FI_CLAIM && c.tag == 7, "is claimed");
			CHECK(!memcmp(room, bytes, SHORT), "bytes");
		}
		REQUIRE(ct_stays_empty(&pair.b, &pair.b.rx));
		REQUIRE(!fi_cntr_readerr(done));
		/* It is gone. */
		EXPECT(fi_control(&pair.b.domain->fid, FI_QUEUE_WORK, &work), -FI_ENOMSG);
	}
	OK(fi_close(&when->fid));
	OK(fi_close(&done->fid));
	ct_close_pair(&pair);
	free(bytes);
}

/* Discarding gives no completion, and frees the memory that the sender keeps.
 */
static void discarded_of(size_t len)
{
	struct ct_pair pair;
	void *bytes = message_of(len, 2);
	struct ct_completion c;

	open_buffered(&pair);
	for (int tagged = 0; tagged < 2; tagged++) {
		post(&pair, tagged, 7, bytes, len);
		c = told(&pair, len, bytes, tagged ? FI_TAGGED : FI_MSG);
		discard(&pair, &c);
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		REQUIRE(ct_stays_empty(&pair.b, &pair.b.rx));
		EXPECT(give_back(&pair, &c, FI_DISCARD, NULL, 0), -FI_ENOMSG);
	}
	ct_close_pair(&pair);
	free(bytes);
}

static void discard_short(void)
{
	discarded_of(SHORT);
}

static void discard_in_parts(void)
{
	discarded_of(IN_PARTS);
}

static void discard_large(void)
{
	discarded_of(LARGE);
}

/* A claimed message completes with the context that was left for it. */
static void claimed_of(size_t len, bool has_more)
{
	struct ct_pair pair;
	struct ct_spec spec = { .counters = FI_RECV };
	void *bytes = message_of(len, 3);
	unsigned char *to = malloc(len + 1);
	struct ct_completion c, done;
	size_t least = 0, size = sizeof(least);

	REQUIRE(to);
	open_with(&pair, spec);
	OK(fi_getopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN,
		     &least, &size));
	for (int tagged = 0; tagged < 2; tagged++) {
		uint64_t kind = tagged ? FI_TAGGED : FI_MSG;

		post(&pair, tagged, 9, bytes, len);
		c = told(&pair, len, bytes, kind);
		CHECK(!!(c.flags & FI_MORE) == has_more, "more");
		CHECK(!memcmp(c.buf, bytes, len < least ? len : least),
		      "first bytes");
		memset(to, 0, len);
		done = claim(&pair, &c, to, len + 1);
		CHECK(!done.err && done.context == &claim_context, "context");
		CHECK(done.flags & FI_CLAIM, "claimed");
		CHECK(!(done.flags & FI_MORE), "no more");
		CHECK((done.flags & (FI_MSG | FI_TAGGED)) == kind, "kind");
		CHECK(done.len == len, "length %zu", done.len);
		CHECK(!memcmp(to, bytes, len), "bytes");
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		ct_count(&pair.b, CT_CNTR_RECV, (uint64_t)tagged + 1);
		EXPECT(give_back(&pair, &c, FI_CLAIM, to, len), -FI_ENOMSG);
	}
	ct_close_pair(&pair);
	free(bytes);
	free(to);
}

static void claim_empty(void)
{
	claimed_of(0, false);
}

static void claim_short(void)
{
	claimed_of(SHORT, false);
}

static void claim_in_parts(void)
{
	claimed_of(IN_PARTS, true);
}

static void claim_large(void)
{
	claimed_of(LARGE, true);
}

/* A message that is too long is truncated. */
static void truncated(void)
{
	static const size_t lens[] = { SHORT, IN_PARTS, LARGE };
	struct ct_pair pair;
	unsigned char to[SHORT / 2 + 1];

	open_buffered(&pair);
	for (int i = 0; i < 3; i++) {
		void *bytes = message_of(lens[i], 4);
		struct ct_completion c, done;

		post(&pair, true, 9, bytes, lens[i]);
		c = told(&pair, lens[i], bytes, FI_TAGGED);
		to[SHORT / 2] = 0xee;
		done = claim(&pair, &c, to, SHORT / 2);
		CHECK(done.err == FI_ETRUNC, "error %d", done.err);
		CHECK(done.context == &claim_context, "context");
		CHECK(done.olen == lens[i] - SHORT / 2, "olen %zu", done.olen);
		CHECK(to[SHORT / 2] == 0xee, "beyond the buffer");
		CHECK(!memcmp(to, bytes, SHORT / 2), "bytes");
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		free(bytes);
	}
	ct_close_pair(&pair);
}

/* Messages are reported in order, and released in any order. */
static void order(void)
{
	enum { COUNT = 32 };
	struct ct_pair pair;
	struct ct_completion c[COUNT], done;
	unsigned char to[8];

	open_buffered(&pair);
	for (int i = 0; i < COUNT; i++) {
		unsigned char bytes[8];

		ct_fill(bytes, sizeof(bytes), (unsigned)i);
		post(&pair, true, (uint64_t)i, bytes, sizeof(bytes));
		ct_done(&pair.a, &pair.a.tx, &tx_context);
	}
	for (int i = 0; i < COUNT; i++) {
		c[i] = ct_next(&pair.b, &pair.b.rx);
		CHECK(c[i].tag == (uint64_t)i, "order");
	}
	for (int i = COUNT - 1; i >= 0; i--) {
		if (i % 2) {
			discard(&pair, &c[i]);
			continue;
		}
		done = claim(&pair, &c[i], to, sizeof(to));
		CHECK(!done.err && done.tag == (uint64_t)i, "claimed");
		CHECK(ct_holds(to, sizeof(to), (unsigned)i), "bytes");
	}
	ct_close_pair(&pair);
}

/* Immediate data and the source are reported. */
static void data(void)
{
	struct ct_pair pair;
	struct ct_spec spec = { .caps = FI_SOURCE };
	struct ct_message m = { .data = 0x1234, .context = &tx_context };
	struct ct_completion c;

	open_with(&pair, spec);
	POST(&pair.a, ct_send(&pair.a, CT_SENDDATA, &m));
	c = told(&pair, 0, NULL, FI_MSG);
	CHECK(c.flags & FI_REMOTE_CQ_DATA && c.data == 0x1234, "data");
	CHECK(c.src == pair.b.to, "source");
	discard(&pair, &c);
	ct_close_pair(&pair);
}

/* A claim must be of a reported message, with the matching call. */
static void wrong_claims(void)
{
	struct ct_pair pair;
	struct fi_recv_context none = { 0 };
	unsigned char bytes[8] = { 0 };
	struct ct_completion c, wrong = { .context = &none };

	open_buffered(&pair);
	EXPECT(give_back(&pair, &wrong, FI_CLAIM, bytes, 8), -FI_ENOMSG);
	EXPECT(give_back(&pair, &wrong, FI_DISCARD, bytes, 8), -FI_ENOMSG);
	EXPECT(fi_recv(pair.b.ep, bytes, 8, NULL, FI_ADDR_UNSPEC, &none),
	       -FI_EINVAL);
	post(&pair, true, 7, bytes, 8);
	c = told(&pair, 8, bytes, FI_TAGGED);
	wrong = c;
	wrong.flags = FI_MSG;
	EXPECT(give_back(&pair, &wrong, FI_CLAIM, bytes, 8), -FI_ENOMSG);
	discard(&pair, &c);
	ct_close_pair(&pair);
}

/* Messages that are left are freed when the endpoint closes. */
static void left(void)
{
	struct ct_pair pair;
	static const size_t lens[] = { SHORT, IN_PARTS, LARGE };

	open_buffered(&pair);
	for (int i = 0; i < 3; i++) {
		void *bytes = message_of(lens[i], 5);

		post(&pair, false, 0, bytes, lens[i]);
		told(&pair, lens[i], bytes, FI_MSG);
		if (lens[i] != LARGE)
			ct_done(&pair.a, &pair.a.tx, &tx_context);
		else
			OK(fi_close(&pair.b.ep->fid));
		if (lens[i] == LARGE) {
			pair.b.ep = NULL;
			ct_error(&pair.a, &pair.a.tx);
		}
		free(bytes);
	}
	ct_close_pair(&pair);
}

static size_t option(struct fid_ep *ep, int name)
{
	size_t value = 0, size = sizeof(value);

	OK(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, name, &value, &size));
	return value;
}

static int set(struct fid_ep *ep, int name, size_t value)
{
	return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, name, &value,
			 sizeof(value));
}

/* The application sets how much is buffered at least and at most. */
static void prepare(struct fid_ep *ep)
{
	size_t most = 0, size = sizeof(most);

	if (fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &most,
		      &size) == -FI_ENOPROTOOPT)
		SKIP("receives are not buffered");
	CHECK(option(ep, FI_OPT_BUFFERED_MIN) <= most, "least and most");
	EXPECT(set(ep, FI_OPT_BUFFERED_LIMIT, most * 1000), -FI_EMSGSIZE);
	OK(set(ep, FI_OPT_BUFFERED_LIMIT, 500));
	OK(set(ep, FI_OPT_BUFFERED_LIMIT, SIZE_MAX));
	CHECK(option(ep, FI_OPT_BUFFERED_LIMIT) == most, "most of all");
	OK(set(ep, FI_OPT_BUFFERED_LIMIT, 500));
	EXPECT(set(ep, FI_OPT_BUFFERED_MIN, 501), -FI_EINVAL);
	OK(set(ep, FI_OPT_BUFFERED_MIN, 300));
}

static void limits(void)
{
	struct ct_pair pair;
	struct ct_spec spec = { .prepare = prepare };
	static const size_t lens[] = { 500, 501, LARGE };

	open_with(&pair, spec);
	EXPECT(set(pair.b.ep, FI_OPT_BUFFERED_MIN, 64), -FI_EOPBADSTATE);
	CHECK(option(pair.b.ep, FI_OPT_BUFFERED_MIN) == 300, "least");
	for (int i = 0; i < 3; i++) {
		void *bytes = message_of(lens[i], 6);
		struct ct_completion c;

		post(&pair, true, 1, bytes, lens[i]);
		c = told(&pair, lens[i], bytes, FI_TAGGED);
		CHECK(!!(c.flags & FI_MORE) == (lens[i] > 500), "more");
		CHECK(!memcmp(c.buf, bytes, 300), "first bytes");
		discard(&pair, &c);
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		free(bytes);
	}
	ct_close_pair(&pair);
}

static void hint_all(struct fi_info *hints)
{
	hints->mode = ~0ULL;
}

/* An application that accepts any mode, or uses the interface without this
 * one, posts receives. */
static void received(const struct ct_spec *spec)
{
	static struct fi_context2 rx_context;
	struct ct_pair pair;
	unsigned char bytes[SHORT], to[SHORT] = { 0 };
	struct ct_message m = {
		.buf = to, .len = SHORT, .from = FI_ADDR_UNSPEC,
		.context = &rx_context,
	};

	ct_fill(bytes, SHORT, 6);
	ct_open_pair(&pair, spec);
	CHECK(!(pair.b.info->mode & BUFFERED_RECV), "mode");
	OK(CT_POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m)));
	post(&pair, false, 0, bytes, SHORT);
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	CHECK(!memcmp(to, bytes, SHORT), "bytes");
	ct_close_pair(&pair);
}

static void all_modes(void)
{
	struct ct_spec spec = { .hint = hint_all };

	received(&spec);
	spec.version = HAS_BUFFERED_RECV;
	received(&spec);
}

static void no_longer(void)
{
	struct ct_spec spec = { .hint = hint };

	received(&spec);
}

/* An application that does not request the mode does not get it. */
static void unasked(void)
{
	struct ct_peer peer;
	struct ct_spec spec = { 0 };
	size_t value, size = sizeof(value);

	ct_open_single(&peer, &spec);
	CHECK(!(peer.info->mode & BUFFERED_RECV), "mode");
	EXPECT(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN,
			 &value, &size), -FI_ENOPROTOOPT);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "whole", whole, CT_RDM },
	{ "deferred", deferred, CT_RDM },
	{ "discard-short", discard_short, CT_RDM },
	{ "discard-in-parts", discard_in_parts, CT_RDM },
	{ "discard-large", discard_large, CT_RDM },
	{ "claim-empty", claim_empty, CT_RDM },
	{ "claim-short", claim_short, CT_RDM },
	{ "claim-in-parts", claim_in_parts, CT_RDM },
	{ "claim-large", claim_large, CT_RDM },
	{ "truncated", truncated, CT_RDM },
	{ "order", order, CT_RDM },
	{ "data", data, CT_RDM },
	{ "wrong-claims", wrong_claims, CT_RDM },
	{ "left", left, CT_RDM },
	{ "limits", limits, CT_RDM },
	{ "unasked", unasked, CT_RDM },
	{ "all-modes", all_modes, CT_RDM },
	{ "no-longer", no_longer, CT_RDM },
};

CT_MAIN(tests)
