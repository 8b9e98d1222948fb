/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two processes, each on a libfabric of its own, test each other: everything
 * that one sends, writes or announces has to arrive at the other unchanged.
 * Each test runs in both directions at the same time unless it says otherwise.
 */
#include <rdma/fi_atomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "connect.h"
#include "flood.h"
#include "large.h"
#include "memory.h"
#include "pattern.h"
#include "side.h"
#include "transfer.h"
#include "wait.h"

static const size_t sizes[] = {
	0, 1, 8, 63, 64, 65, 127, 128, 129, 192, 1000, 4096, 8192, 9001, 16384, 16385,
	65535, 65536, 131073, 1 << 20, 4000037,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
#define LARGEST 4000037

/* The seed of message `number` from the server or the client, which both sides
 * know. */
static unsigned seed_of(bool from_server, int number)
{
	return (unsigned) number * 2 + from_server + 1;
}

static uint64_t data_of(const struct side *side, int number)
{
	uint64_t data = 0xabcdef0123456789ULL * (uint64_t) (number + 1);
	size_t size = side->peer.info->domain_attr->cq_data_size;

	/* The data that both sides support: every provider has at least four
	 * bytes. */
	return data & (size >= 4 ? UINT32_MAX : 0);
}

static uint64_t tag_of(int number)
{
	return 0x0123456700000000ULL + (uint64_t) number;
}

/* A message each way, the receive posted before or after the other side has
 * sent. */
static void exchange(struct side *side, bool tagged, enum ct_send_form form, size_t len,
		     int number, bool expected)
{
	struct ct_peer *peer = &side->peer;
	static struct fi_context2 tx_context, rx_context;
	struct ct_memory out, in;
	struct ct_message tx, rx;
	struct ct_completion done;

	ct_memory_open(peer, &out, len, FI_SEND);
	ct_memory_open(peer, &in, len, FI_RECV);
	tx = (struct ct_message) {
		.tagged = tagged, .buf = out.data, .len = len, .desc = out.desc, .pieces = 3,
		.tag = tag_of(number), .data = data_of(side, number), .context = &tx_context,
	};
	rx = (struct ct_message) {
		.tagged = tagged, .buf = in.data, .len = len, .desc = in.desc, .pieces = 2,
		.tag = tag_of(number), .from = FI_ADDR_UNSPEC, .context = &rx_context,
	};
	ct_fill(out.data, len, seed_of(side->server, number));
	memset(in.data, 0xee, len);
	if (expected) {
		POST(peer, ct_recv(peer, number % 2 ? CT_RECVV : CT_RECV, &rx));
		side_sync(side);
	}
	POST(peer, ct_send(peer, form, &tx));
	if (!expected) {
		side_sync(side);
		POST(peer, ct_recv(peer, number % 2 ? CT_RECVV : CT_RECV, &rx));
	}
	done = ct_done_large(peer, &peer->rx, &rx_context);
	REQUIRE(done.len == len);
	REQUIRE(done.flags & FI_RECV);
	REQUIRE(!tagged || done.tag == tag_of(number));
	REQUIRE(!!(done.flags & FI_REMOTE_CQ_DATA) == ct_send_has_data(form));
	if (ct_send_has_data(form))
		REQUIRE(done.data == data_of(side, number));
	REQUIRE(ct_holds(in.data, len, seed_of(!side->server, number)));
	if (ct_send_completes(form))
		ct_done_large(peer, &peer->tx, &tx_context);
	side_sync(side);
	ct_memory_close(&out);
	ct_memory_close(&in);
}

/* Every form but the one that WIRE_WITHOUT names, which one of the libraries cannot do. */
static void every_form_and_size(const char *test, uint64_t caps)
{
	struct ct_spec spec = { .caps = caps };
	const char *without = getenv("WIRE_WITHOUT");
	struct side side;
	int number = 0;

	side_open(&side, test, &spec);
	for (int form = 0; form < CT_SEND_FORMS; form++) {
		size_t limit = ct_send_limit(&side.peer, form), other;

		if (without && !strcmp(without, ct_send_name(form)))
			continue;
		side_swap(&side, &limit, &other, sizeof(limit));
		for (int i = 0; i < SIZES; i++) {
			if (sizes[i] > limit || sizes[i] > other)
				continue;
			exchange(&side, caps & FI_TAGGED, form, sizes[i], number++, true);
			exchange(&side, caps & FI_TAGGED, form, sizes[i], number++, false);
		}
	}
	side_close(&side);
}

static void messages(void)
{
	every_form_and_size("messages", FI_MSG);
}

static void tagged_messages(void)
{
	every_form_and_size("tagged", FI_TAGGED);
}

/* A message longer than any buffer between, waited for and not. */
static void very_large(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct side side;

	side_open(&side, "very_large", &spec);
	exchange(&side, false, CT_SEND, 100 << 20, 0, true);
	exchange(&side, false, CT_SEND, 100 << 20, 1, false);
	side_close(&side);
}

/* Both sides send far more than fits anywhere, and receive meanwhile. */
static void bursts(void)
{
	enum { WINDOW = 64 };
	struct ct_spec spec = { .caps = FI_MSG };
	static struct fi_context2 tx_contexts[WINDOW], rx_contexts[WINDOW];
	struct side side;
	struct ct_memory out, in;
	const int count = ct_times(20000);
	const size_t size = 96;
	int sent = 0, finished = 0, posted = 0, received = 0;

	side_open(&side, "bursts", &spec);
	struct ct_peer *peer = &side.peer;
	ct_memory_open(peer, &out, size * WINDOW, FI_SEND);
	ct_memory_open(peer, &in, size * WINDOW, FI_RECV);
	while (finished < count || received < count) {
		for (; posted < count && posted - received < WINDOW; posted++) {
			int slot = posted % WINDOW;
			struct ct_message rx = {
				.buf = in.data + (size_t) slot * size, .len = size, .desc = in.desc,
				.from = FI_ADDR_UNSPEC, .context = &rx_contexts[slot],
			};

			POST(peer, ct_recv(peer, CT_RECV, &rx));
		}
		for (; sent < count && sent - finished < WINDOW; sent++) {
			int slot = sent % WINDOW;
			struct ct_message tx = {
				.buf = out.data + (size_t) slot * size, .desc = out.desc,
				.len = 1 + (size_t) sent % size, .context = &tx_contexts[slot],
			};
			ssize_t ret;

			ct_fill(tx.buf, tx.len, seed_of(side.server, sent));
			ret = ct_send(peer, CT_SEND, &tx);
			if (ret == -FI_EAGAIN)
				break;
			OK(ret);
		}
		ct_progress(peer);
		while (peer->tx.count) {
			ct_done(peer, &peer->tx, &tx_contexts[finished % WINDOW]);
			finished++;
		}
		while (peer->rx.count) {
			int slot = received % WINDOW;
			struct ct_completion done =
				ct_done(peer, &peer->rx, &rx_contexts[slot]);

			REQUIRE(done.len == 1 + (size_t) received % size);
			REQUIRE(ct_holds(in.data + (size_t) slot * size, done.len,
					 seed_of(!side.server, received)));
			received++;
		}
	}
	side_sync(&side);
	ct_memory_close(&out);
	ct_memory_close(&in);
	side_close(&side);
}

/* Unexpected messages with many tags, fetched in another order than sent. */
static void tag_order(void)
{
	enum { COUNT = 60, SIZE = 30000 };
	struct ct_spec spec = { .caps = FI_TAGGED };
	static struct fi_context2 tx_contexts[COUNT], rx_context;
	struct ct_memory out, in;
	struct side side;

	side_open(&side, "tag_order", &spec);
	struct ct_peer *peer = &side.peer;
	ct_memory_open(peer, &out, COUNT * SIZE, FI_SEND);
	ct_memory_open(peer, &in, SIZE, FI_RECV);
	for (int i = 0; i < COUNT; i++) {
		struct ct_message tx = {
			.tagged = true, .buf = out.data + i * SIZE, .desc = out.desc,
			.len = (size_t) i * SIZE / COUNT, .tag = tag_of(i),
			.context = &tx_contexts[i],
		};

		ct_fill(tx.buf, tx.len, seed_of(side.server, i));
		POST(peer, ct_send(peer, CT_SEND, &tx));
	}
	side_sync(&side);
	side_linger(&side, 0.05);
	for (int i = COUNT - 1; i >= 0; i--) {
		/* The last half by exact tag, the rest with the low bits ignored,
		 * which gives them in the order in which they were sent. */
		bool exact = i >= COUNT / 2;
		int number = exact ? i : COUNT / 2 - 1 - i;
		struct ct_message rx = {
			.tagged = true, .buf = in.data, .len = SIZE, .desc = in.desc,
			.tag = tag_of(exact ? i : 0), .ignore = exact ? 0 : 0xff,
			.from = FI_ADDR_UNSPEC, .context = &rx_context,
		};
		struct ct_completion done;

		POST(peer, ct_recv(peer, CT_RECV, &rx));
		done = ct_done(peer, &peer->rx, &rx_context);
		REQUIRE(done.tag == tag_of(number));
		REQUIRE(done.len == (size_t) number * SIZE / COUNT);
		REQUIRE(ct_holds(in.data, done.len, seed_of(!side.server, number)));
	}
	/* Sends need not complete in the order of their matching. */
	for (int i = 0; i < COUNT; i++)
		REQUIRE(!ct_next(peer, &peer->tx).err);
	side_sync(&side);
	ct_memory_close(&out);
	ct_memory_close(&in);
	side_close(&side);
}

/* The levels of completion that a sender can ask for. */
static void completion_levels(void)
{
	static const uint64_t levels[] = {
		FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
	};
	struct ct_spec spec = { .caps = FI_MSG };
	static struct fi_context2 tx_context, rx_context;
	struct ct_memory out, in;
	struct side side;
	int number = 0;

	side_open(&side, "completion_levels", &spec);
	struct ct_peer *peer = &side.peer;
	ct_memory_open(peer, &out, LARGEST, FI_SEND);
	ct_memory_open(peer, &in, LARGEST, FI_RECV);
	for (size_t level = 0; level < sizeof(levels) / sizeof(levels[0]); level++) {
		for (int i = 0; i < SIZES; i++, number++) {
			struct ct_message tx = {
				.buf = out.data, .len = sizes[i], .desc = out.desc,
				.flags = levels[level] | FI_COMPLETION, .context = &tx_context,
			}, rx = {
				.buf = in.data, .len = sizes[i], .desc = in.desc,
				.from = FI_ADDR_UNSPEC, .context = &rx_context,
			};

			ct_fill(out.data, sizes[i], seed_of(side.server, number));
			POST(peer, ct_recv(peer, CT_RECV, &rx));
			POST(peer, ct_send(peer, CT_SENDMSG, &tx));
			ct_done(peer, &peer->tx, &tx_context);
			ct_done(peer, &peer->rx, &rx_context);
			REQUIRE(ct_holds(in.data, sizes[i], seed_of(!side.server, number)));
		}
	}
	side_sync(&side);
	ct_memory_close(&out);
	ct_memory_close(&in);
	side_close(&side);
}

/* A region that the other side may write to and read from. */
struct target {
	uint64_t key, addr;
};

static void remote_access_at(struct side *side, enum ct_rma_form form, size_t len, int number,
			     struct ct_memory *local, struct ct_memory *region,
			     const struct target *theirs)
{
	struct ct_peer *peer = &side->peer;
	static struct fi_context2 context;
	struct ct_completion done;
	bool read = ct_rma_is_read(form);
	struct ct_rma rma = {
		.buf = local->data, .len = len, .desc = local->desc, .pieces = 3,
		.remote_pieces = 2, .addr = theirs->addr, .key = theirs->key,
		.data = data_of(side, number), .context = &context,
		.flags = FI_COMPLETION | (number % 2 && !read ? FI_DELIVERY_COMPLETE : 0),
	};

	memset(region->data, 0xee, len + 1);
	memset(local->data, 0xdd, len);
	ct_fill(read ? region->data : local->data, len, seed_of(side->server, number));
	side_sync(side);
	POST(peer, ct_rma(peer, form, &rma));
	if (ct_rma_completes(form)) {
		done = ct_done(peer, &peer->tx, &context);
		REQUIRE(done.flags & (read ? FI_READ : FI_WRITE));
	}
	if (read)
		REQUIRE(ct_holds(local->data, len, seed_of(!side->server, number)));
	if (ct_rma_has_data(form)) {
		done = ct_next(peer, &peer->rx);
		REQUIRE(!done.err);
		REQUIRE(done.flags & FI_REMOTE_CQ_DATA);
		REQUIRE(done.data == data_of(side, number));
	} else if (!read) {
		/* Without an event, the next message reports that the write is
		 * complete. */
		static struct fi_context2 tx_context, rx_context;
		struct ct_message rx = { .from = FI_ADDR_UNSPEC, .context = &rx_context };
		struct ct_message tx = { .context = &tx_context };

		POST(peer, ct_recv(peer, CT_RECV, &rx));
		POST(peer, ct_send(peer, CT_SEND, &tx));
		ct_done(peer, &peer->rx, &rx_context);
		ct_done(peer, &peer->tx, &tx_context);
	}
	if (!read) {
		REQUIRE(ct_holds(region->data, len, seed_of(!side->server, number)));
		REQUIRE(region->data[len] == 0xee);
	}
	side_sync(side);
}

static void remote_access(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory region, local;
	struct target mine, theirs;
	struct side side;
	int number = 0;

	side_open(&side, "remote_access", &spec);
	struct ct_peer *peer = &side.peer;
	ct_memory_open(peer, &region, LARGEST + 1, FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_memory_open(peer, &local, LARGEST, FI_READ | FI_WRITE);
	mine = (struct target) { .key = region.key, .addr = region.addr };
	side_swap(&side, &mine, &theirs, sizeof(mine));
	for (int form = 0; form < CT_RMA_FORMS; form++) {
		size_t limit = ct_rma_limit(peer, form), other;

		side_swap(&side, &limit, &other, sizeof(limit));
		for (int i = 0; i < SIZES; i++)
			if (sizes[i] && sizes[i] <= limit && sizes[i] <= other)
				remote_access_at(&side, form, sizes[i], number++, &local,
						 &region, &theirs);
	}
	ct_memory_close(&region);
	ct_memory_close(&local);
	side_close(&side);
}

/* The receiver learns the source, and can receive from one source only. */
static void sources(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE | FI_DIRECTED_RECV };
	static struct fi_context2 tx_context, rx_context;
	struct side side;
	char out[32], in[32];

	side_open(&side, "sources", &spec);
	struct ct_peer *peer = &side.peer;
	for (int i = 0; i < 20; i++) {
		struct ct_message tx = { .buf = out, .len = sizeof(out), .context = &tx_context };
		struct ct_message rx = {
			.buf = in, .len = sizeof(in), .from = i % 2 ? peer->to : FI_ADDR_UNSPEC,
			.context = &rx_context,
		};

		ct_fill(out, sizeof(out), seed_of(side.server, i));
		POST(peer, ct_recv(peer, CT_RECV, &rx));
		POST(peer, ct_send(peer, CT_SEND, &tx));
		REQUIRE(ct_done(peer, &peer->rx, &rx_context).src == peer->to);
		REQUIRE(ct_holds(in, sizeof(in), seed_of(!side.server, i)));
		ct_done(peer, &peer->tx, &tx_context);
	}
	side_close(&side);
}

/* Fresh endpoints that connect to each other at the same moment, again and
 * again. */
static void simultaneous_connects(void)
{
	struct ct_spec spec = { .caps = FI_MSG };

	for (int round = 0; round < ct_times(60); round++) {
		struct side side;

		side_open(&side, "simultaneous_connects", &spec);
		exchange(&side, false, CT_SEND, 100, round, round % 2);
		side_close(&side);
	}
}

/* One side keeps its endpoint, the other replaces its own by a new one. */
static void returning_peer(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct side side;
	unsigned char name[256];

	side_open(&side, "returning_peer", &spec);
	for (int round = 0; round < 20; round++) {
		memset(name, 0, sizeof(name));
		if (!side.server) {
			/* The server's state of the old endpoint ends with it.
			 * The new one has another address: messages that the
			 * server sends to the old one before it notices its
			 * end are lost. */
			struct ct_peer fresh;

			ct_open_single(&fresh, &spec);
			ct_close_peer(&side.peer);
			side.peer = fresh;
		}
		ct_name(&side.peer.ep->fid, name, sizeof(name));
		unsigned char theirs[256];
		side_swap(&side, name, theirs, sizeof(name));
		side.peer.to = ct_insert(&side.peer, theirs);
		exchange(&side, false, CT_SEND, 5000, round, true);
	}
	side_close(&side);
}

#define ATOMIC_ARGUMENTS(peer) (peer)->to, 0, 1, FI_UINT64, FI_SUM

/* Atomic operations between two sides that know them; towards one that does
 * not, an error at the call, also if it is the first of all calls. */
static void atomics(void)
{
	struct ct_spec wanted = { .caps = FI_MSG | FI_RMA | FI_ATOMIC };
	struct ct_spec otherwise = { .caps = FI_MSG | FI_RMA };
	static struct fi_context2 context;
	static uint64_t operand = 1, result;
	struct side side;
	bool mine, theirs;

	mine = side_open_as_able(&side, "atomics", &wanted, &otherwise);
	side_swap(&side, &mine, &theirs, sizeof(mine));
	struct ct_peer *peer = &side.peer;
	if (mine && !theirs) {
		EXPECT(CT_POST(peer, fi_inject_atomic(peer->ep, &operand, 1,
						      ATOMIC_ARGUMENTS(peer))),
		       -FI_EOPNOTSUPP);
		EXPECT(fi_atomic(peer->ep, &operand, 1, NULL, ATOMIC_ARGUMENTS(peer), &context),
		       -FI_EOPNOTSUPP);
		EXPECT(fi_fetch_atomic(peer->ep, &operand, 1, NULL, &result, NULL,
				       ATOMIC_ARGUMENTS(peer), &context),
		       -FI_EOPNOTSUPP);
		REQUIRE(ct_stays_empty(peer, &peer->tx));
	}
	side_sync(&side);
	/* Neither side is the worse for it. */
	exchange(&side, false, CT_SEND, 1000, 0, true);
	if (mine && theirs) {
		struct target here, there;
		struct ct_memory region;

		ct_memory_open(peer, &region, sizeof(operand), FI_REMOTE_READ | FI_REMOTE_WRITE);
		here = (struct target) { .key = region.key, .addr = region.addr };
		side_swap(&side, &here, &there, sizeof(here));
		POST(peer, fi_fetch_atomic(peer->ep, &operand, 1, NULL, &result, NULL, peer->to,
					   there.addr, there.key, FI_UINT64, FI_SUM, &context));
		ct_done(peer, &peer->tx, &context);
		REQUIRE(!result);
		side_sync(&side);
		REQUIRE(*(uint64_t *)region.data == 1);
		ct_memory_close(&region);
	}
	side_close(&side);
}

static void with_key(struct fi_info *hints)
{
	hints->ep_attr->auth_key = (uint8_t *)strdup("secret");
	REQUIRE(hints->ep_attr->auth_key);
	hints->ep_attr->auth_key_size = strlen("secret");
}

/* A side with a key and one without cannot communicate, whichever of them
 * begins. */
static void keys(void)
{
	struct ct_spec wanted = { .hint = with_key }, otherwise = { 0 };
	static struct fi_context2 tx_context, rx_context;
	unsigned char mine[256] = { 0 }, theirs[256];
	struct fid_pep *pep = NULL;
	bool keyed, other_keyed;
	struct side side;

	/* The side with the key tries again for a fifteenth of this, and a slow
	 * other one must have answered by then; read at the first call. */
	setenv("FI_TCP_CONNECT_TIMEOUT", "30000", 1);
	keyed = side_prepare_as_able(&side, "keys", &wanted, &otherwise);
	side_swap(&side, &keyed, &other_keyed, sizeof(keyed));
	if (keyed == other_keyed) {
		side_sync(&side);
		SKIP("both sides are the same");
	}
	struct ct_peer *peer = &side.peer;
	if (ct_opt.type == FI_EP_MSG && side.server)
		pep = ct_listen(peer);
	else
		ct_open_ep(peer, peer->info);
	ct_name(pep ? &pep->fid : &peer->ep->fid, mine, sizeof(mine));
	side_swap(&side, mine, theirs, sizeof(mine));
	if (ct_opt.type != FI_EP_MSG) {
		peer->to = ct_insert(peer, theirs);
		POST(peer, fi_recv(peer->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context));
		if (keyed) {
			POST(peer, fi_send(peer->ep, NULL, 0, NULL, peer->to, &tx_context));
			REQUIRE(ct_error(peer, &peer->tx).err == FI_EKEYREJECTED);
		}
		/* The C library may return -FI_EAGAIN for ever. */
		for (int i = 0; !keyed && i < 100; i++) {
			if (fi_send(peer->ep, NULL, 0, NULL, peer->to, &tx_context) != -FI_EAGAIN)
				break;
			side_linger(&side, 0.001);
		}
		side_sync(&side);
		REQUIRE(ct_stays_empty(peer, &peer->rx));
	} else if (!side.server) {
		OK(fi_connect(peer->ep, theirs, NULL, 0));
		REQUIRE(ct_any_event(peer).failed);
		side_sync(&side);
	} else {
		side_sync(&side);
		REQUIRE(ct_no_event(peer));
		OK(fi_close(&pep->fid));
	}
	side_close(&side);
}

/* Connection data there and back, then a request that is turned down. */
static void connection_data(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct side side;
	struct ct_event event;
	unsigned char name[256] = { 0 }, unused[256], data[64];

	side_meet(&side, "connection_data");
	struct ct_peer *peer = &side.peer;
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (side.server) {
		struct fid_pep *pep = ct_listen(peer);

		ct_name(&pep->fid, name, sizeof(name));
		side_swap(&side, name, unused, sizeof(name));
		ct_wait_request(peer, &event);
		REQUIRE(event.data_len >= sizeof(data));
		REQUIRE(ct_holds(event.data, sizeof(data), 1));
		ct_fill(data, sizeof(data), 3);
		OK(fi_reject(pep, event.info->handle, data, sizeof(data)));
		fi_freeinfo(event.info);

		ct_wait_request(peer, &event);
		REQUIRE(ct_holds(event.data, sizeof(data), 4));
		ct_fill(data, sizeof(data), 5);
		ct_accept(peer, &event, data, sizeof(data));
		ct_wait_connected(peer);
		side_sync(&side);
		OK(fi_close(&pep->fid));
		/* The client closes; this side gets an event. */
		event = ct_event_of(peer, FI_SHUTDOWN);
		REQUIRE(event.fid == &peer->ep->fid);
	} else {
		side_swap(&side, unused, name, sizeof(name));
		ct_open_ep(peer, peer->info);
		ct_fill(data, sizeof(data), 1);
		OK(fi_connect(peer->ep, name, data, sizeof(data)));
		event = ct_any_event(peer);
		REQUIRE(event.failed);
		REQUIRE(event.err.err == FI_ECONNREFUSED);
		REQUIRE(event.data_len >= sizeof(data));
		REQUIRE(ct_holds(event.data, sizeof(data), 3));
		OK(fi_close(&peer->ep->fid));

		ct_open_ep(peer, peer->info);
		ct_fill(data, sizeof(data), 4);
		OK(fi_connect(peer->ep, name, data, sizeof(data)));
		event = ct_event_of(peer, FI_CONNECTED);
		REQUIRE(event.data_len >= sizeof(data));
		REQUIRE(ct_holds(event.data, sizeof(data), 5));
		side_sync(&side);
		OK(fi_shutdown(peer->ep, 0));
	}
	side_close(&side);
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_BOTH | CT_SLOW },
	{ "tagged", tagged_messages, CT_BOTH | CT_SLOW },
	{ "very_large", very_large, CT_BOTH },
	{ "beyond_2_gib", beyond_2_gib, CT_BOTH | CT_SLOW },
	{ "bursts", bursts, CT_BOTH },
	{ "tag_order", tag_order, CT_BOTH },
	{ "few_unexpected", few_unexpected, CT_RDM | CT_SLOW },
	{ "many_unexpected", many_unexpected, CT_RDM | CT_SLOW },
	{ "many_unexpected_reversed", many_unexpected_reversed, CT_RDM | CT_SLOW },
	{ "completion_levels", completion_levels, CT_BOTH },
	{ "remote_access", remote_access, CT_BOTH | CT_SLOW },
	{ "sources", sources, CT_RDM },
	{ "simultaneous_connects", simultaneous_connects, CT_BOTH },
	{ "returning_peer", returning_peer, CT_RDM },
	{ "connection_data", connection_data, CT_MSG },
	{ "atomics", atomics, CT_BOTH },
	{ "keys", keys, CT_BOTH },
};

CT_MAIN(tests)
