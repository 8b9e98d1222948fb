/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two endpoints that send each other many messages before either receives any, and then
 * receive them in the reverse order of their tags: every send is accepted and every message
 * received, however many there are, as long as both call the library. The counts are
 * above the sizes of transmit contexts and, in the tests "beyond/..." and "awaited/...", what is
 * kept of unexpected messages is above the memory that the parameters of the providers allow for
 * it. In the latter both wait for the message that is sent last, or look for it, from the
 * beginning. The tests "ordered/..." are those of connected endpoints, which complete receives in
 * the order in which they were posted.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

/* Above the usual transmit contexts of each provider for messages of some bytes. */
#define MANY 20000
/* Messages that are too long to be sent before they are asked for. */
#define LONG_ONES 3000
#define LONG (20 << 10)
/* Those that are too long for that on tcp between two processes, too. */
#define LONGER_ONES 1200
#define LONGER (160 << 10)
/* Numbers of both that take far more than 64 KiB, the least budget. */
#define BEYOND 4000
#define LONG_BEYOND 400
/* Messages that are asked for, before so many short ones that their receiver stops reading. */
#define ASKED 20
#define FLOOD_BEHIND 2000

/* Messages of a connected endpoint, of all sizes in turn: less than its transmit context holds, and
 * more bytes than a provider sends before there are receives. */
#define ORDERED 200
/* Its receives that are posted at a time. */
#define WINDOW 16
/* A transmit context that is asked to be small, where all of these are many. */
#define SMALL 64

struct flood {
	int count;
	size_t len;
	uint64_t flags;			/* of the sends */
	enum ct_send_form form;
	bool in_order;			/* of the receives */
	bool beyond;			/* the budget of the receiver */
	bool awaited;			/* the receive of the last message is posted first */
	bool sought;			/* the last message is looked for until it is there */
	size_t tx_size;			/* that is asked for; 0: the provider's choice */
};

static struct ct_pair pair;
static size_t tx_size;
static struct fi_context2 *contexts;
static unsigned char *out;

static void send_all(const struct flood *flood)
{
	for (int i = 0; i < flood->count; i++) {
		struct ct_peer *sides[] = { &pair.a, &pair.b };

		for (int side = 0; side < 2; side++) {
			struct ct_message m = {
				.tagged = true, .tag = (uint64_t)i,
				.buf = out + (size_t)(i % 256), .len = flood->len,
				.flags = flood->flags,
				.context = &contexts[2 * i + side],
			};

			POST(sides[side], ct_send(sides[side], flood->form, &m));
		}
	}
}

/* A receive of each side. */
static struct slot {
	struct fi_context2 context;
	unsigned char *buf;
} slots[2];

static void post(int side, int i, size_t len)
{
	struct ct_peer *sides[] = { &pair.a, &pair.b };
	struct slot *slot = &slots[side];
	struct ct_message m = {
		.tagged = true, .tag = (uint64_t)i, .buf = slot->buf, .len = len,
		.from = FI_ADDR_UNSPEC, .context = &slot->context,
	};

	memset(slot->buf, 0xff, len);
	POST(sides[side], ct_recv(sides[side], CT_RECV, &m));
}

static void take(int side, int i, size_t len)
{
	struct ct_peer *sides[] = { &pair.a, &pair.b };
	struct slot *slot = &slots[side];
	struct ct_completion done = ct_done_large(sides[side], &sides[side]->rx, &slot->context);

	REQUIRE(done.tag == (uint64_t)i && done.len == len);
	REQUIRE(!memcmp(slot->buf, out + i % 256, len));
}

/* Looks for a message; returns whether it is there. */
static bool look(struct ct_peer *peer, int i)
{
	static struct fi_context2 context;
	struct ct_message m = {
		.tagged = true, .tag = (uint64_t)i, .from = FI_ADDR_UNSPEC, .flags = FI_PEEK,
		.context = &context,
	};
	struct ct_completion seen;

	POST(peer, ct_recv(peer, CT_RECVMSG, &m));
	seen = ct_next(peer, &peer->rx);
	REQUIRE(seen.err == 0 || seen.err == FI_ENOMSG);
	return !seen.err;
}

/* Whether both wait for the last message before they send: asked for, or because senders over rxm
 * and rxd, which cannot announce messages, wait while nobody waits for what is beyond the
 * budget. */
static bool waits_first(const struct flood *flood)
{
	bool is_above = strstr(pair.a.info->fabric_attr->prov_name, "ofi_rx");

	return flood->awaited || (flood->beyond && is_above);
}

static void pass(const struct flood *flood)
{
	bool awaited = waits_first(flood);
	int last = flood->count - 1;

	for (int side = 0; awaited && side < 2; side++)
		post(side, last, flood->len);
	if (flood->sought)
		REQUIRE(!look(&pair.a, last) && !look(&pair.b, last));
	send_all(flood);
	if (flood->sought) {
		UNTIL(&pair.a, look(&pair.a, last));
		UNTIL(&pair.b, look(&pair.b, last));
	}
	for (int n = 0; n < flood->count; n++) {
		int i = flood->in_order ? n : last - n;

		for (int side = 0; side < 2; side++) {
			if (!awaited || i != last)
				post(side, i, flood->len);
			take(side, i, flood->len);
		}
	}
	if (!ct_send_completes(flood->form))
		return;
	for (int i = 0; i < flood->count; i++) {
		OK(ct_next(&pair.a, &pair.a.tx).err);
		OK(ct_next(&pair.b, &pair.b.tx).err);
	}
}

static void ask_for_size(struct fi_info *hints)
{
	hints->tx_attr->size = tx_size;
}

/* The memory of tests with this many operations, and messages of up to `len` bytes. */
static void open_memory(size_t operations, size_t len)
{
	size_t room = len + 256;

	contexts = calloc(operations, sizeof(*contexts));
	out = malloc(room);
	slots[0].buf = malloc(room);
	slots[1].buf = malloc(room);
	REQUIRE(contexts && out && slots[0].buf && slots[1].buf);
	for (size_t i = 0; i < room; i++)
		out[i] = (unsigned char)(i * 7 + i / 251);
}

static void close_memory(void)
{
	free(contexts);
	free(out);
	free(slots[0].buf);
	free(slots[1].buf);
}

static void run(const struct flood *flood)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_TAGGED,
		.tx_op_flags = flood->flags & ~FI_INJECT,
	};

	tx_size = flood->tx_size;
	if (tx_size)
		spec.hint = ask_for_size;
	open_memory(2 * (size_t)flood->count, flood->len);
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	pass(flood);
	ct_close_pair(&pair);
	close_memory();
}

/* Parameters that bound what is kept of unexpected messages, at their least. */
static void keep_little(void)
{
	setenv("FI_SHM_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_TCP_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_SOCKETS_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_OFI_RXM_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_OFI_RXD_MAX_UNEXPECTED", "65536", 1);
}

static size_t ordered_len(int i)
{
	static const size_t lens[] = { 20 << 10, 8, 160 << 10, 100, 3 << 20, 1000, 20 << 10, 64 };

	return lens[i % 8];
}

static void post_ordered(struct ct_peer *peer, int i, unsigned char *place)
{
	struct ct_message m = {
		.buf = place, .len = ordered_len(i), .from = FI_ADDR_UNSPEC,
		.context = &contexts[i],
	};

	memset(place, 0xff, m.len);
	POST(peer, ct_recv(peer, CT_RECV, &m));
}

static void receive_ordered(struct ct_peer *peer, unsigned char **places, int count)
{
	int posted = 0;

	for (int i = 0; i < count; i++) {
		struct ct_completion done;

		for (; posted < count && posted < i + WINDOW; posted++)
			post_ordered(peer, posted, places[posted % WINDOW]);
		done = ct_done_large(peer, &peer->rx, &contexts[i]);
		REQUIRE(done.len == ordered_len(i));
		REQUIRE(!memcmp(places[i % WINDOW], out + i, done.len));
	}
}

/* Both send all, and then each receives all. */
static void pass_ordered(int count, unsigned char **places)
{
	struct ct_peer *sides[] = { &pair.a, &pair.b };

	for (int i = 0; i < count; i++) {
		for (int side = 0; side < 2; side++) {
			struct ct_message m = {
				.buf = out + i, .len = ordered_len(i), .context = &contexts[i],
			};

			POST(sides[side], ct_send(sides[side], CT_SEND, &m));
		}
	}
	for (int side = 0; side < 2; side++)
		receive_ordered(sides[side], places, count);
	for (int i = 0; i < count; i++) {
		OK(ct_next(&pair.a, &pair.a.tx).err);
		OK(ct_next(&pair.b, &pair.b.tx).err);
	}
}

static size_t behind_len(int i)
{
	return i < ASKED ? LONGER : LONG;
}

/*
 * One side sends messages that the other one has to ask for, and then more short ones than that one
 * keeps, as many as it is allowed to while nobody receives. Returns their number.
 */
static int flood_one_side(int count)
{
	int sent = 0;

	for (int idle = 0; sent < count && idle < 2000;) {
		struct ct_message m = {
			.tagged = true, .tag = (uint64_t)sent, .buf = out + sent % 256, .len = behind_len(sent),
			.context = &contexts[sent],
		};
		ssize_t ret = ct_send(&pair.a, CT_SEND, &m);

		if (ret == -FI_EAGAIN) {
			idle++;
			ct_progress(&pair.a);
			continue;
		}
		OK(ret);
		sent++;
		idle = 0;
	}
	REQUIRE(sent > ASKED);
	return sent;
}

/* The other side sends a message, and waits until it is delivered before it receives any. */
static void send_against_a_flood(size_t len)
{
	static struct fi_context2 context, received;
	struct ct_message to = {
		.tagged = true, .tag = 7, .buf = out, .len = len, .flags = FI_DELIVERY_COMPLETE | FI_COMPLETION,
		.context = &context,
	};
	struct ct_message from = {
		.tagged = true, .tag = 7, .buf = slots[0].buf, .len = len, .from = FI_ADDR_UNSPEC,
		.context = &received,
	};

	memset(slots[0].buf, 0xff, len);
	POST(&pair.a, ct_recv(&pair.a, CT_RECV, &from));
	POST(&pair.b, ct_send(&pair.b, CT_SENDMSG, &to));
	ct_done_large(&pair.b, &pair.b.tx, &context);
	ct_done_large(&pair.a, &pair.a.rx, &received);
	REQUIRE(!memcmp(slots[0].buf, out, len));
}

/* What the receiver of a flood asks for or waits for comes, although it has stopped reading. */
static void behind_a_flood(bool sends)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
	int count = ASKED + ct_times(FLOOD_BEHIND), sent;

	keep_little();
	open_memory((size_t)count, LONGER);
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	sent = flood_one_side(count);
	if (sends) {
		send_against_a_flood(64);
		send_against_a_flood(LONG);
		send_against_a_flood(LONGER);
	}
	for (int i = 0; i < sent; i++) {
		post(1, i, behind_len(i));
		take(1, i, behind_len(i));
	}
	for (int i = 0; i < sent; i++)
		OK(ct_next(&pair.a, &pair.a.tx).err);
	ct_close_pair(&pair);
	close_memory();
}

static void asked_before_a_flood(void)
{
	behind_a_flood(false);
}

static void delivered_against_a_flood(void)
{
	behind_a_flood(true);
}

static void ordered(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char *places[WINDOW];

	open_memory(ORDERED, 3 << 20);
	for (int i = 0; i < WINDOW; i++) {
		places[i] = malloc(3 << 20);
		REQUIRE(places[i]);
	}
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	pass_ordered(ORDERED, places);
	ct_close_pair(&pair);
	for (int i = 0; i < WINDOW; i++)
		free(places[i]);
	close_memory();
}

static void ordered_little(void)
{
	keep_little();
	ordered();
}

#define SHORT_FLOOD .count = MANY, .len = 8
#define SHORT_BEYOND .count = BEYOND, .len = 8
#define LONG_BEYOND_IT .count = LONG_BEYOND, .len = LONG
#define LONG_FLOOD .count = LONG_ONES, .len = LONG
#define LONGER_FLOOD .count = LONGER_ONES, .len = LONGER

#define FLOOD(name, limit, ...)						\
	static void name(void)						\
	{								\
		struct flood flood = { __VA_ARGS__ };			\
									\
		limit;							\
		flood.count = ct_times(flood.count);			\
		run(&flood);						\
	}

FLOOD(plain, , SHORT_FLOOD, .form = CT_SEND)
FLOOD(injected, , SHORT_FLOOD, .form = CT_INJECT)
FLOOD(delivered, , SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG)
FLOOD(delivered_by_default, , SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SEND)
FLOOD(delivered_in_order, , SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG,
      .in_order = true)
FLOOD(delivered_and_injected, , SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE | FI_INJECT,
      .form = CT_SENDMSG)
FLOOD(long_plain, , LONG_FLOOD, .form = CT_SEND)
FLOOD(long_delivered, , LONG_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG)
FLOOD(longer_plain, , LONGER_FLOOD, .form = CT_SEND)
FLOOD(longer_delivered, , LONGER_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG)
FLOOD(small_plain, , SHORT_FLOOD, .form = CT_SEND, .tx_size = SMALL)
FLOOD(small_delivered, , SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG,
      .tx_size = SMALL)
FLOOD(small_long, , LONG_FLOOD, .form = CT_SEND, .tx_size = SMALL)
FLOOD(small_longer, , LONGER_FLOOD, .form = CT_SEND, .tx_size = SMALL)
FLOOD(small_longer_delivered, , LONGER_FLOOD, .flags = FI_DELIVERY_COMPLETE, .form = CT_SENDMSG,
      .tx_size = SMALL)
FLOOD(more_plain, keep_little(), SHORT_BEYOND, .form = CT_SEND, .beyond = true)
FLOOD(more_injected, keep_little(), SHORT_BEYOND, .form = CT_INJECT, .beyond = true)
FLOOD(more_delivered, keep_little(), SHORT_BEYOND, .flags = FI_DELIVERY_COMPLETE,
      .form = CT_SENDMSG, .beyond = true)
FLOOD(more_long, keep_little(), LONG_BEYOND_IT, .form = CT_SEND, .beyond = true)
FLOOD(more_sought, keep_little(), SHORT_BEYOND, .form = CT_SEND, .sought = true)
FLOOD(awaited_plain, keep_little(), SHORT_BEYOND, .form = CT_SEND, .awaited = true)
FLOOD(awaited_injected, keep_little(), SHORT_BEYOND, .form = CT_INJECT, .awaited = true)
FLOOD(awaited_delivered, keep_little(), SHORT_BEYOND, .flags = FI_DELIVERY_COMPLETE,
      .form = CT_SENDMSG, .awaited = true)
FLOOD(awaited_long, keep_little(), LONG_BEYOND_IT, .form = CT_SEND, .awaited = true)

static const struct ct_test tests[] = {
	{ "plain", plain, CT_RDM | CT_SLOW },
	{ "injected", injected, CT_RDM | CT_SLOW },
	{ "delivered", delivered, CT_RDM | CT_SLOW },
	{ "delivered/by-default", delivered_by_default, CT_RDM | CT_SLOW },
	{ "delivered/in-order", delivered_in_order, CT_RDM | CT_SLOW },
	{ "delivered/injected", delivered_and_injected, CT_RDM | CT_SLOW },
	{ "long", long_plain, CT_RDM | CT_SLOW },
	{ "long/delivered", long_delivered, CT_RDM | CT_SLOW },
	{ "longer", longer_plain, CT_RDM | CT_SLOW },
	{ "longer/delivered", longer_delivered, CT_RDM | CT_SLOW },
	{ "small", small_plain, CT_RDM | CT_SLOW },
	{ "small/delivered", small_delivered, CT_RDM | CT_SLOW },
	{ "small/long", small_long, CT_RDM | CT_SLOW },
	{ "small/longer", small_longer, CT_RDM | CT_SLOW },
	{ "small/longer/delivered", small_longer_delivered, CT_RDM | CT_SLOW },
	{ "beyond", more_plain, CT_RDM | CT_SLOW },
	{ "beyond/injected", more_injected, CT_RDM | CT_SLOW },
	{ "beyond/delivered", more_delivered, CT_RDM | CT_SLOW },
	{ "beyond/long", more_long, CT_RDM | CT_SLOW },
	{ "beyond/sought", more_sought, CT_RDM | CT_SLOW },
	{ "awaited", awaited_plain, CT_RDM | CT_SLOW },
	{ "awaited/injected", awaited_injected, CT_RDM | CT_SLOW },
	{ "awaited/delivered", awaited_delivered, CT_RDM | CT_SLOW },
	{ "awaited/long", awaited_long, CT_RDM | CT_SLOW },
	{ "asked-before-a-flood", asked_before_a_flood, CT_RDM | CT_SLOW },
	{ "delivered-against-a-flood", delivered_against_a_flood, CT_RDM | CT_SLOW },
	{ "ordered", ordered, CT_MSG | CT_SLOW },
	{ "ordered/little-kept", ordered_little, CT_MSG | CT_SLOW },
};

CT_MAIN(tests)
