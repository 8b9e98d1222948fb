/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Messages to a process that makes no calls until it is told of them, which it is when they are
 * complete: the provider has taken the bytes.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define MOST 32
#define ROUNDS 32

/* The limit is that of the kernel's send buffer: by default, 4 MiB. */
#define KIB_64 (64 << 10)
#define KIB_100 (100 << 10)
#define KIB_128 (128 << 10)
#define MIB_1 (1 << 20)
#define MB_2 2000000
#define MIB_3 (3 << 20)

static struct plan {
	size_t len;
	enum ct_send_form form;
	bool tagged;
	bool has_met;		/* the two have exchanged some messages before */
	int count;		/* of messages; 0 is one */
	bool delivers;		/* the first one is complete when it is delivered */
	/* Of the sender, when its messages are complete: */
	bool is_silent;		/* it makes no call until they have arrived */
	bool closes;		/* it closes its endpoint */
	bool kills;		/* the receiver, which gets nothing */
	/* The receiver does not wait to be told, but by so many milliseconds longer from message to
	 * message: its receives meet any step of what the sender does about an idle peer. */
	int delay;
} plan;

static struct fi_context2 tx_context[MOST], rx_context[MOST];

static int count(void)
{
	return plan.count ? plan.count : 1;
}

static struct ct_spec spec_of(void)
{
	return (struct ct_spec) { .caps = plan.tagged ? FI_MSG | FI_TAGGED : FI_MSG };
}

static struct ct_message message(int i, void *buf, size_t len, void *context)
{
	return (struct ct_message) {
		.tagged = plan.tagged, .tag = (uint64_t)i, .buf = buf, .len = len, .pieces = 4,
		.data = 7, .from = FI_ADDR_UNSPEC, .context = context,
	};
}

/* What the messages are for is to be found out by the two, who share a host. */
static void round_trips(struct ct_peer *peer, bool is_first)
{
	int rounds = plan.has_met ? ROUNDS : 1;
	char word = 'r';

	for (int i = 0; i < 2 * rounds; i++) {
		bool sends = is_first == !(i % 2);
		struct ct_message m = message(9, &word, 1, sends ? tx_context : rx_context);

		if (sends) {
			POST(peer, ct_send(peer, CT_SEND, &m));
			ct_done(peer, &peer->tx, tx_context);
		} else {
			POST(peer, ct_recv(peer, CT_RECV, &m));
			ct_done(peer, &peer->rx, rx_context);
		}
	}
}

static void open_peer(struct ct_peer *peer, int fd, bool listens)
{
	struct ct_spec spec = spec_of();
	struct ct_card own = { 0 }, other;
	struct fid_pep *pep = NULL;

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type != FI_EP_MSG)
		ct_open_ep(peer, peer->info);
	else if (listens)
		pep = ct_listen(peer);
	ct_meet(peer, &own, &other, fd, pep);
	if (pep)
		OK(fi_close(&pep->fid));
	round_trips(peer, listens);
}

static unsigned char byte_at(int i, size_t at)
{
	return (unsigned char)(at * 7 + at / 4096 + (size_t)i + 1);
}

static void receive(struct ct_peer *peer, unsigned char *in, int i)
{
	struct ct_message m = message(i, in, plan.len, &rx_context[i]);

	memset(in, 0, plan.len);
	POST(peer, ct_recv(peer, CT_RECV, &m));
	REQUIRE(ct_done(peer, &peer->rx, &rx_context[i]).len == plan.len);
	for (size_t at = 0; at < plan.len; at++)
		REQUIRE(in[at] == byte_at(i, at));
}

static void receiver(int fd)
{
	unsigned char *in = calloc(1, plan.len);
	struct ct_peer peer;
	char word;

	REQUIRE(in);
	open_peer(&peer, fd, false);
	ct_tell(fd, "i", 1);
	ct_hear(fd, &word, 1);
	for (int i = 0; i < count(); i++) {
		if (plan.delay)
			usleep(1000 * (i % 8 * plan.delay));
		receive(&peer, in, i);
		if (plan.delay)
			ct_tell(fd, "n", 1);
	}
	ct_tell(fd, "x", 1);
	ct_hear(fd, &word, 1);
	ct_close_peer(&peer);
	free(in);
}

static void post(struct ct_peer *peer, unsigned char *out, int i)
{
	struct ct_message m = message(i, out, plan.len, &tx_context[i]);

	for (size_t at = 0; at < plan.len; at++)
		out[at] = byte_at(i, at);
	if (i || !plan.delivers) {
		POST(peer, ct_send(peer, plan.form, &m));
	} else {
		m.flags = FI_DELIVERY_COMPLETE;
		POST(peer, ct_send(peer, CT_SENDMSG, &m));
	}
}

/* The operations are complete whose messages do not have to be delivered, and their memory belongs
 * to this program again. */
static void await_completions(struct ct_peer *peer, unsigned char *out[])
{
	for (int i = plan.delivers; i < count(); i++) {
		ct_done(peer, &peer->tx, &tx_context[i]);
		memset(out[i], 0, plan.len);
	}
}

/* One message after another, whose memory changes as soon as they are complete. */
static void in_rounds(struct ct_peer *peer, int fd)
{
	struct pollfd told = { .fd = fd, .events = POLLIN };
	unsigned char *out = malloc(plan.len);
	char word;

	REQUIRE(out);
	ct_tell(fd, "r", 1);
	for (int i = 0; i < count(); i++) {
		post(peer, out, i);
		ct_done(peer, &peer->tx, &tx_context[i]);
		memset(out, 0, plan.len);
		UNTIL(peer, poll(&told, 1, 0) == 1);
		ct_hear(fd, &word, 1);
	}
	free(out);
}

/* Longer messages wait for the receiver over rxm, whose packets are 16 KiB long, as in the C library. */
static bool is_too_long(void)
{
	return plan.len > KIB_128 && ct_opt.provider && strstr(ct_opt.provider, "ofi_rxm");
}

static void run(void)
{
	if (is_too_long())
		SKIP("a rendezvous");

	struct ct_child child = ct_spawn(receiver);
	struct pollfd told = { .fd = child.fd, .events = POLLIN };
	unsigned char *out[MOST];
	struct ct_peer peer;
	char word;

	ct_begin(&child);
	open_peer(&peer, child.fd, true);
	ct_hear(child.fd, &word, 1);
	if (plan.delay) {
		in_rounds(&peer, child.fd);
		ct_hear(child.fd, &word, 1);
		ct_tell(child.fd, "x", 1);
		ct_join(&child);
		ct_close_peer(&peer);
		return;
	}
	for (int i = 0; i < count(); i++) {
		out[i] = malloc(plan.len);
		REQUIRE(out[i]);
		post(&peer, out[i], i);
	}
	await_completions(&peer, out);
	if (plan.kills) {
		ct_kill(&child);
		ct_close_peer(&peer);
		return;
	}
	ct_tell(child.fd, "r", 1);
	if (plan.closes)
		ct_close_peer(&peer);
	else if (!plan.is_silent)
		UNTIL(&peer, poll(&told, 1, 0) == 1);
	ct_hear(child.fd, &word, 1);
	if (plan.delivers)
		ct_done(&peer, &peer.tx, &tx_context[0]);
	ct_tell(child.fd, "x", 1);
	ct_join(&child);
	if (!plan.closes)
		ct_close_peer(&peer);
	for (int i = 0; i < count(); i++)
		free(out[i]);
}

#define TEST(name, ...)				\
	static void name(void)			\
	{					\
		plan = (struct plan) { __VA_ARGS__ };	\
		run();				\
	}

TEST(short_one, .len = KIB_64)
TEST(short_tagged, .len = KIB_64, .tagged = true)
TEST(short_silent, .len = KIB_64, .is_silent = true)
TEST(short_closes, .len = KIB_64, .closes = true)
TEST(medium, .len = MIB_1)
TEST(long_one, .len = MB_2)
TEST(longest, .len = MIB_3)
TEST(tagged, .len = MB_2, .tagged = true)
TEST(tagged_longest, .len = MIB_3, .tagged = true)
TEST(vector, .len = MB_2, .form = CT_SENDV)
TEST(data, .len = MB_2, .form = CT_SENDDATA)
TEST(several, .len = MIB_1, .count = 3)
TEST(delivered, .len = MIB_1, .count = 2, .delivers = true)
TEST(is_silent, .len = MB_2, .is_silent = true)
TEST(closes, .len = MB_2, .closes = true)
TEST(closes_longest, .len = MIB_3, .closes = true)
TEST(silent_longest, .len = MIB_3, .is_silent = true)
TEST(killed, .len = MB_2, .kills = true)
TEST(met_short, .has_met = true, .len = KIB_64)
TEST(met_medium, .has_met = true, .len = MIB_1)
TEST(met_long, .has_met = true, .len = MB_2)
TEST(met_longest, .has_met = true, .len = MIB_3)
TEST(met_tagged, .has_met = true, .len = MB_2, .tagged = true)
TEST(met_vector, .has_met = true, .len = MB_2, .form = CT_SENDV)
TEST(met_data, .has_met = true, .len = MB_2, .form = CT_SENDDATA)
TEST(met_several, .has_met = true, .len = MIB_1, .count = 3)
TEST(met_many, .has_met = true, .len = KIB_100, .count = MOST)
TEST(met_delivered, .has_met = true, .len = MIB_1, .count = 2, .delivers = true)
TEST(met_silent, .has_met = true, .len = MIB_3, .is_silent = true)
TEST(met_closes, .has_met = true, .len = MIB_3, .closes = true)
TEST(met_killed, .has_met = true, .len = MB_2, .kills = true)
TEST(met_late, .has_met = true, .len = MIB_1, .count = 16, .delay = 7)

static const struct ct_test tests[] = {
	{ "64KiB", short_one, CT_BOTH },
	{ "64KiB/tagged", short_tagged, CT_RDM },
	{ "64KiB/silent", short_silent, CT_BOTH },
	{ "64KiB/closes", short_closes, CT_BOTH },
	{ "1MiB", medium, CT_BOTH },
	{ "2MB", long_one, CT_BOTH },
	{ "3MiB", longest, CT_BOTH },
	{ "tagged/2MB", tagged, CT_RDM },
	{ "tagged/3MiB", tagged_longest, CT_RDM },
	{ "vector", vector, CT_BOTH },
	{ "data", data, CT_BOTH },
	{ "several", several, CT_BOTH },
	{ "delivered", delivered, CT_BOTH },
	{ "silent", is_silent, CT_BOTH },
	{ "silent/3MiB", silent_longest, CT_BOTH },
	{ "closes", closes, CT_BOTH },
	{ "closes/3MiB", closes_longest, CT_BOTH },
	{ "killed", killed, CT_BOTH },
	{ "met/64KiB", met_short, CT_BOTH },
	{ "met/1MiB", met_medium, CT_BOTH },
	{ "met/2MB", met_long, CT_BOTH },
	{ "met/3MiB", met_longest, CT_BOTH },
	{ "met/tagged", met_tagged, CT_RDM },
	{ "met/vector", met_vector, CT_BOTH },
	{ "met/data", met_data, CT_BOTH },
	{ "met/several", met_several, CT_BOTH },
	{ "met/many", met_many, CT_BOTH },
	{ "met/delivered", met_delivered, CT_BOTH },
	{ "met/silent", met_silent, CT_BOTH },
	{ "met/closes", met_closes, CT_BOTH },
	{ "met/killed", met_killed, CT_BOTH },
	{ "met/late", met_late, CT_BOTH },
};

CT_MAIN(tests)
