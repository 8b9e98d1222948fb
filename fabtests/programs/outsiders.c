/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Groups of collective operations (fi_collective(3)) and those who are no
 * members: an endpoint that knows the members' addresses, and so the tags of
 * the messages by which they join, breaks no group. What members agree on
 * meanwhile is random. The tags and messages are those of
 * docs/collectives-wire.md.
 */
#include <string.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_tagged.h>

#include "check.h"
#include "peer.h"
#include "wait.h"

#define RESERVED (1ULL << 63)
#define FAILURE 1ULL
#define NUMBER(n) ((uint64_t)(n) << 1)
#define GROUP_BITS 46
#define GROUP_SHIFT 17

/* Immediate data of the first barrier. */
#define AGREES (1ULL << 63)
#define NOT_ALL (1ULL << 62)
#define RANDOM (NOT_ALL - 1)

enum { PLAIN_TAG = 5 };

struct name {
	unsigned char bytes[256];
	size_t len;
};

/* ---- SipHash-1-3 with the key 0 ---------------------------------------- */

static uint64_t rotated(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotated(v[1], 13) ^ v[0];
	v[0] = rotated(v[0], 32);
	v[2] += v[3];
	v[3] = rotated(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotated(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotated(v[1], 17) ^ v[2];
	v[2] = rotated(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

static uint64_t siphash(const unsigned char *bytes, size_t len)
{
	uint64_t v[4] = {
		0x736f6d6570736575, 0x646f72616e646f6d,
		0x6c7967656e657261, 0x7465646279746573,
	};
	uint64_t word = 0;

	for (size_t i = 0; i < len; i++) {
		word |= (uint64_t)bytes[i] << 8 * (i % 8);
		if (i % 8 == 7) {
			sip_word(v, word);
			word = 0;
		}
	}
	sip_word(v, word | (uint64_t)len << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The group's part of the tags with which its members join. */
static uint64_t public_id(const struct name *members, int count, uint64_t instance)
{
	unsigned char all[2 * sizeof(members->bytes)];
	size_t len = 0;

	for (int i = 0; i < count; i++) {
		memcpy(all + len, members[i].bytes, members[i].len);
		len += members[i].len;
	}
	return (siphash(all, len) ^ instance * 0x9e3779b97f4a7c15) &
	       ((1ULL << GROUP_BITS) - 1);
}

static uint64_t tag_of(uint64_t id)
{
	return RESERVED | id << GROUP_SHIFT;
}

/* ---- members and others ------------------------------------------------ */

struct member {
	struct ct_peer peer;
	fi_addr_t of[2];
	struct fid_av_set *set;
	struct fid_mc *mc;
	struct fi_context2 context;
};

static struct name names[3];

static void name_of(struct ct_peer *peer, struct name *name)
{
	name->len = ct_name(&peer->ep->fid, name->bytes, sizeof(name->bytes));
}

static void open_member(struct member *it)
{
	struct ct_spec spec = {
		.caps = FI_TAGGED | FI_COLLECTIVE, .eq = true, .one_cq = true,
	};

	ct_open_single(&it->peer, &spec);
}

static void open_other(struct ct_peer *peer)
{
	struct ct_spec spec = { .caps = FI_TAGGED, .one_cq = true };

	ct_open_single(peer, &spec);
}

static void begin_to_join(struct member *it)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};

	OK(fi_av_set(it->peer.av, &attr, &it->set, NULL));
	for (int i = 0; i < 2; i++)
		OK(fi_av_set_insert(it->set, it->of[i]));
	OK(fi_join_collective(it->peer.ep, FI_ADDR_NOTAVAIL, it->set, 0, &it->mc, NULL));
}

static bool has_joined(struct member *it)
{
	struct fi_eq_entry entry;
	uint32_t event;
	ssize_t ret = fi_eq_read(it->peer.eq.fid, &event, &entry, sizeof(entry), 0);

	if (ret == -FI_EAGAIN)
		return false;
	REQUIRE(ret == sizeof(entry) && event == FI_JOIN_COMPLETE);
	REQUIRE(entry.fid == &it->mc->fid);
	return true;
}

static void leave(struct member *it)
{
	OK(fi_close(&it->mc->fid));
	OK(fi_close(&it->set->fid));
}

static void begin_barrier(struct member *it)
{
	OK(fi_barrier(it->peer.ep, fi_mc_addr(it->mc), &it->context));
}

/* ---- an endpoint that is no member --------------------------------------- */

struct outsider {
	struct ct_peer peer;
	fi_addr_t to[2];
	struct fi_context2 context[2];
};

/* Sends to both members with a tag, and waits until they have it: what is sent
 * behind it arrives behind it. */
static void say(struct outsider *it, struct member *members, uint64_t tag, size_t len)
{
	static const char bytes[8];
	struct member *m;

	for (int i = 0; i < 2; i++) {
		m = &members[i];
		POST(&m->peer, fi_trecv(m->peer.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
					PLAIN_TAG, 0, &it->context[i]));
		POST(&it->peer, fi_tinject(it->peer.ep, bytes, len, it->to[i], tag));
		POST(&it->peer, fi_tinject(it->peer.ep, NULL, 0, it->to[i], PLAIN_TAG));
	}
	for (int i = 0; i < 2; i++) {
		m = &members[i];
		UNTIL(&it->peer, (ct_progress(&m->peer), m->peer.tx.count) &&
		      m->peer.tx.stash[m->peer.tx.first].context == &it->context[i]);
		REQUIRE(!ct_next(&m->peer, &m->peer.tx).err);
	}
}

static void say_all(struct outsider *it, struct member *members, uint64_t instance)
{
	uint64_t tag = tag_of(public_id(names, 2, instance));

	for (int i = 0; i < 3; i++) {
		say(it, members, tag | FAILURE, 0);
		say(it, members, tag | FAILURE, 8);
	}
}

/* Both barriers end without an error. */
static void end_barriers(struct member *members)
{
	for (int i = 0; i < 2; i++) {
		struct ct_peer *peer = &members[i].peer;
		struct ct_completion done;

		peer->partner = &members[!i].peer;
		done = ct_next(peer, &peer->tx);
		CHECK(!done.err && done.context == &members[i].context,
		      "member-%d", i);
	}
}

static void notices(bool is_known)
{
	static struct member members[2];
	static struct outsider outsider;

	for (int i = 0; i < 2; i++) {
		open_member(&members[i]);
		name_of(&members[i].peer, &names[i]);
	}
	open_other(&outsider.peer);
	name_of(&outsider.peer, &names[2]);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			members[i].of[j] = ct_insert(&members[i].peer, names[j].bytes);
		if (is_known)
			ct_insert(&members[i].peer, names[2].bytes);
		outsider.to[i] = ct_insert(&outsider.peer, names[i].bytes);
	}
	for (uint64_t instance = 0; instance < 3; instance++) {
		bool joined[2] = { false, false };

		say_all(&outsider, members, instance);
		for (int i = 0; i < 2; i++) {
			begin_to_join(&members[i]);
			say_all(&outsider, members, instance);
		}
		UNTIL(&members[0].peer, (ct_progress(&members[1].peer),
		      joined[0] |= !joined[0] && has_joined(&members[0]),
		      joined[1] |= !joined[1] && has_joined(&members[1]),
		      joined[0] && joined[1]));
		say_all(&outsider, members, instance);
		begin_barrier(&members[0]);
		say_all(&outsider, members, instance);
		begin_barrier(&members[1]);
		end_barriers(members);
		for (int i = 0; i < 2; i++)
			leave(&members[i]);
	}
	for (int i = 0; i < 2; i++)
		ct_close_peer(&members[i].peer);
	ct_close_peer(&outsider.peer);
}

/* Members do not know its address. */
static void strangers(void)
{
	notices(false);
}

/* Members have its address in their vectors. */
static void acquaintances(void)
{
	notices(true);
}

/* ---- a member that is written by hand ------------------------------------ */

static struct fi_context2 heard, said;

/* The next message of the honest member. */
static struct ct_completion next_of(struct ct_peer *hand, struct member *honest)
{
	struct ct_completion done;

	hand->partner = &honest->peer;
	POST(hand, fi_trecv(hand->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &heard));
	done = ct_done(hand, &hand->tx, &heard);
	REQUIRE(!done.err && done.len == 0);
	return done;
}

/* The random number on which a group of two agrees whose first member is the
 * honest one; 0 if `answer` makes it join without one. */
static uint64_t agreed(uint64_t instance, struct ct_peer *hand, fi_addr_t to,
		       struct member *honest, bool answer)
{
	uint64_t id = public_id(names, 2, instance), number = 0;
	struct ct_completion message;

	begin_to_join(honest);
	message = next_of(hand, honest);
	REQUIRE(message.tag == (tag_of(id) | NUMBER(0)));
	if (answer) {
		REQUIRE(message.flags & FI_REMOTE_CQ_DATA);
		number = message.data & RANDOM;
		REQUIRE(message.data == (AGREES | number) && number);
		POST(hand, fi_tsenddata(hand->ep, NULL, 0, NULL, AGREES | number, to,
					message.tag, &said));
		ct_done(hand, &hand->tx, &said);
		id ^= number & ((1ULL << GROUP_BITS) - 1);
		message = next_of(hand, honest);
		REQUIRE(message.tag == (tag_of(id) | NUMBER(1)));
	}
	POST(hand, fi_tsend(hand->ep, NULL, 0, NULL, to, message.tag, &said));
	ct_done(hand, &hand->tx, &said);
	UNTIL(hand, (ct_progress(&honest->peer), has_joined(honest)));
	/* A barrier, with the number that follows. */
	begin_barrier(honest);
	message = next_of(hand, honest);
	REQUIRE(message.tag == (tag_of(id) | NUMBER(answer ? 2 : 1)));
	POST(hand, fi_tsend(hand->ep, NULL, 0, NULL, to, message.tag, &said));
	ct_done(hand, &hand->tx, &said);
	honest->peer.partner = hand;
	ct_done(&honest->peer, &honest->peer.tx, &honest->context);
	leave(honest);
	return number;
}

/* The id of a group's messages is another one each time, and that of releases
 * that do not agree on one if a member is of such a release. */
static void random_ids(void)
{
	static struct member honest;
	struct ct_peer hand;
	uint64_t first, second;
	fi_addr_t to;

	open_member(&honest);
	name_of(&honest.peer, &names[0]);
	open_other(&hand);
	name_of(&hand, &names[1]);
	for (int i = 0; i < 2; i++)
		honest.of[i] = ct_insert(&honest.peer, names[i].bytes);
	to = ct_insert(&hand, names[0].bytes);
	first = agreed(0, &hand, to, &honest, true);
	second = agreed(1, &hand, to, &honest, true);
	CHECK(first != second, "another");
	CHECK(agreed(2, &hand, to, &honest, false) == 0, "none");
	ct_close_peer(&honest.peer);
	ct_close_peer(&hand);
}

static const struct ct_test tests[] = {
	{ "strangers", strangers, CT_RDM },
	{ "acquaintances", acquaintances, CT_RDM },
	{ "random-ids", random_ids, CT_RDM },
};

CT_MAIN(tests)
