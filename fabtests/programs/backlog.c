/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two endpoints that send each other many messages before either receives any, and then
 * receive them in the reverse order of their tags: every send is accepted and every message
 * received, however many there are, as long as both call the library. The counts are
 * above the sizes of transmit contexts and, in the tests "beyond/...", what is kept of
 * unexpected messages is above the memory that the parameters of the providers allow for it.
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
/* A transmit context that is asked to be small, where all of these are many. */
#define SMALL 64

struct flood {
	int count;
	size_t len;
	uint64_t flags;			/* of the sends */
	enum ct_send_form form;
	bool in_order;			/* of the receives */
	size_t tx_size;			/* that is asked for; 0: the provider's choice */
};

static struct ct_pair pair;
static size_t tx_size;
static bool keeps_little;
static struct fi_context2 *contexts;
static unsigned char *out, *in;

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

static void receive(struct ct_peer *peer, int i, size_t len)
{
	static struct fi_context2 context;
	struct ct_message m = {
		.tagged = true, .tag = (uint64_t)i, .buf = in, .len = len,
		.from = FI_ADDR_UNSPEC, .context = &context,
	};
	struct ct_completion done;

	memset(in, 0xff, len);
	POST(peer, ct_recv(peer, CT_RECV, &m));
	done = ct_done_large(peer, &peer->rx, &context);
	REQUIRE(done.tag == (uint64_t)i && done.len == len);
	REQUIRE(!memcmp(in, out + i % 256, len));
}

static void pass(const struct flood *flood)
{
	send_all(flood);
	for (int n = 0; n < flood->count; n++) {
		int i = flood->in_order ? n : flood->count - 1 - n;

		receive(&pair.a, i, flood->len);
		receive(&pair.b, i, flood->len);
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

static void run(const struct flood *flood)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_TAGGED,
		.tx_op_flags = flood->flags & ~FI_INJECT,
	};
	size_t room = flood->len + 256;

	tx_size = flood->tx_size;
	if (tx_size)
		spec.hint = ask_for_size;
	contexts = calloc(2 * (size_t)flood->count, sizeof(*contexts));
	out = malloc(room);
	in = malloc(room);
	REQUIRE(contexts && out && in);
	for (size_t i = 0; i < room; i++)
		out[i] = (unsigned char)(i * 7 + i / 251);
	ct_open_pair(&pair, &spec);
	if (keeps_little && strstr(pair.a.info->fabric_attr->prov_name, "ofi_rx"))
		SKIP("senders wait there, which cannot announce messages");
	ct_warm_up(&pair);
	pass(flood);
	ct_close_pair(&pair);
	free(contexts);
	free(out);
	free(in);
}

/* Parameters that bound what is kept of unexpected messages, at their least. */
static void keep_little(void)
{
	keeps_little = true;
	setenv("FI_SHM_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_TCP_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_SOCKETS_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_OFI_RXM_MAX_UNEXPECTED", "65536", 1);
	setenv("FI_OFI_RXD_MAX_UNEXPECTED", "65536", 1);
}

#define SHORT_FLOOD .count = MANY, .len = 8
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
FLOOD(more_plain, keep_little(), SHORT_FLOOD, .form = CT_SEND)
FLOOD(more_injected, keep_little(), SHORT_FLOOD, .form = CT_INJECT)
FLOOD(more_delivered, keep_little(), SHORT_FLOOD, .flags = FI_DELIVERY_COMPLETE,
      .form = CT_SENDMSG)
FLOOD(more_long, keep_little(), LONG_FLOOD, .form = CT_SEND)

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
};

CT_MAIN(tests)
