/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "round.h"

#include <string.h>

#include "pattern.h"
#include "transfer.h"
#include <rdma/fi_atomic.h>

/* Numbers of messages in place of a round's. */
enum { HELLO = 1000, CARDS = 2000, DONE = 3000, FAREWELL = 4000 };

static uint64_t tag_of(const struct member *member, int number, int i)
{
	return (uint64_t)member->season << 32 | (uint64_t)number << 8 |
	       (uint64_t)i;
}

static fi_addr_t name_of(const struct member *member, int other)
{
	return ct_opt.type == FI_EP_MSG ? FI_ADDR_UNSPEC :
					  member->others[other];
}

/* Posts, and makes progress as long as there is no space. */
#define POST_NOW(sleeper, call)						\
	do {								\
		ssize_t ret_;						\
									\
		while ((ret_ = (call)) == -FI_EAGAIN)			\
			sleeper_drain(sleeper);				\
		EXPECT(ret_, 0);					\
	} while (0)

static unsigned char *received(struct member *member, int i, size_t len)
{
	return member->local.data + SENT_SIZE + (size_t)i * len;
}

static void post_receive(struct member *member, struct sleeper *sleeper,
			 int number, int i, size_t len)
{
	struct ct_message message = {
		.tagged = true, .buf = received(member, i, len), .len = len,
		.desc = member->local.desc, .tag = tag_of(member, number, i),
		.from = FI_ADDR_UNSPEC,
		.context = sleeper_opens(sleeper, &member->rx[i]),
	};

	POST_NOW(sleeper, ct_recv(&member->peer, CT_RECV, &message));
}

static void post_send(struct member *member, struct sleeper *sleeper,
		      enum ct_send_form form, int to, int number, int i,
		      size_t len)
{
	struct ct_message message = {
		.tagged = true, .buf = member->local.data + (size_t)i * len,
		.len = len, .desc = member->local.desc, .data = 7,
		.tag = tag_of(member, number, i),
		.flags = FI_COMPLETION |
			 (form == CT_SENDMSG ? FI_DELIVERY_COMPLETE : 0),
	};

	if (ct_send_completes(form) || form == CT_SENDMSG)
		message.context = sleeper_opens(sleeper, &member->tx[i]);
	member->peer.to = name_of(member, to);
	POST_NOW(sleeper, ct_send(&member->peer, form, &message));
}

static void sent(struct member *member, struct sleeper *sleeper)
{
	sleeper_until_done(sleeper, member->peer.tx.fid, 0);
}

static void have_come(struct member *member, struct sleeper *sleeper)
{
	sleeper_until_done(sleeper, member->peer.rx.fid, 0);
}

void window_clear(struct member *member)
{
	memset(member->window.data + WORDS, 0, WINDOW_SIZE - WORDS);
}

void welcome(struct member *member)
{
	struct sleeper *sleeper = &member->main;

	/* Each at a time: they have the longest message's room. */
	for (int i = 1; i < member->script->members; i++) {
		size_t len = script_hello(member->script, member->season, i) +
			     sizeof(struct ct_card);

		if (len > LONGEST)
			len = LONGEST;
		post_receive(member, sleeper, HELLO + i, 0, len);
		have_come(member, sleeper);
		memcpy(&member->cards[i], received(member, 0, len),
		       sizeof(member->cards[i]));
	}
}

void introduce(struct member *member)
{
	struct sleeper *sleeper = &member->main;
	size_t len = sizeof(member->cards);

	memcpy(member->local.data, member->cards, len);
	for (int i = 1; i < member->script->members; i++) {
		post_send(member, sleeper, CT_SEND, i, CARDS + i, 0, len);
		sent(member, sleeper);
	}
}

void say_hello(struct member *member)
{
	struct sleeper *sleeper = &member->main;
	size_t len = script_hello(member->script, member->season, member->self) +
		     sizeof(struct ct_card);

	if (len > LONGEST)
		len = LONGEST;
	memcpy(member->local.data, &member->cards[member->self],
	       sizeof(struct ct_card));
	watch_part("saying hello", member->season, -1);
	post_send(member, sleeper, CT_SEND, 0, HELLO + member->self, 0, len);
	sent(member, sleeper);
	len = sizeof(member->cards);
	watch_part("waiting for an introduction", member->season, -1);
	post_receive(member, sleeper, CARDS + member->self, 0, len);
	have_come(member, sleeper);
	memcpy(member->cards, received(member, 0, len), len);
}

void part(struct member *member)
{
	struct sleeper *sleeper = &member->main;

	for (int i = 1; i < member->script->members; i++) {
		post_receive(member, sleeper, DONE + i, 0, 8);
		have_come(member, sleeper);
	}
	/* It may be the last that either of them does. */
	for (int i = 1; i < member->script->members; i++) {
		post_send(member, sleeper, CT_SEND, i, FAREWELL + i, 0, 8);
		sent(member, sleeper);
	}
}

void take_leave(struct member *member)
{
	struct sleeper *sleeper = &member->main;

	watch_part("taking leave", member->season, ROUNDS);
	post_send(member, sleeper, CT_SEND, 0, DONE + member->self, 0, 8);
	sent(member, sleeper);
	watch_part("waiting for a farewell", member->season, ROUNDS);
	post_receive(member, sleeper, FAREWELL + member->self, 0, 8);
	have_come(member, sleeper);
}

static enum ct_counter counter_of(enum kind kind)
{
	switch (kind) {
	case READ:
	case FETCH:
		return CT_CNTR_READ;
	case WRITE:
	case WRITE_COUNTED:
	case WRITE_DATA:
		return CT_CNTR_WRITE;
	default:
		return CT_CNTR_SEND;
	}
}

static void access_window(struct member *member, struct sleeper *sleeper,
			  const struct round *round, int number)
{
	const struct ct_card *card = &member->cards[round->to];
	struct ct_rma rma = {
		.buf = member->local.data, .len = round->len,
		.desc = member->local.desc, .data = (uint64_t)number,
		.addr = card->addr + (uint64_t)number * LONGEST,
		.key = card->key,
		.context = sleeper_opens(sleeper, &member->tx[0]),
	};
	enum ct_rma_form form = round->kind == READ ? CT_READ :
				round->kind == WRITE_DATA ? CT_WRITEDATA :
							    CT_WRITE;

	member->peer.to = name_of(member, round->to);
	POST_NOW(sleeper, ct_rma(&member->peer, form, &rma));
}

static void fetch_word(struct member *member, struct sleeper *sleeper,
		       const struct round *round, int number)
{
	const struct ct_card *card = &member->cards[round->to];
	uint64_t *operand = (uint64_t *)member->local.data;
	void *context = sleeper_opens(sleeper, &member->tx[0]);

	operand[0] = 1;
	operand[1] = 77;
	POST_NOW(sleeper, fi_fetch_atomic(
		member->peer.ep, operand, 1, member->local.desc, operand + 1,
		member->local.desc, name_of(member, round->to),
		card->addr + WORDS + (uint64_t)number * sizeof(uint64_t),
		card->key, FI_UINT64, FI_SUM, context));
}

static void post_round(struct member *member, struct sleeper *sleeper,
		       const struct round *round, int number)
{
	static const enum ct_send_form forms[] = {
		[INJECT] = CT_INJECT, [SEND] = CT_SEND,
		[SEND_DATA] = CT_SENDDATA, [SEND_DELIVERED] = CT_SENDMSG,
		[SEND_SEVERAL] = CT_SEND,
	};

	for (int i = 0; i < round->count; i++)
		ct_fill(member->local.data + (size_t)i * round->len, round->len,
			script_pattern(member->season, number, i));
	if (round->kind == FETCH)
		fetch_word(member, sleeper, round, number);
	else if (round->kind >= WRITE)
		access_window(member, sleeper, round, number);
	else
		for (int i = 0; i < round->count; i++)
			post_send(member, sleeper, forms[round->kind],
				  round->to, number, i, round->len);
}

/* Whether the other one is informed by a message that follows. */
static bool needs_word(enum kind kind)
{
	return kind == WRITE || kind == READ || kind == FETCH;
}

void round_send(struct member *member, struct sleeper *sleeper, int number)
{
	struct round round = script_round(member->script, member->season,
					  number);
	struct fid_cntr *cntr = member->peer.cntr[counter_of(round.kind)];
	uint64_t before;

	if (round.from != member->self)
		return;
	watch_part(kind_name(round.kind), member->season, number);
	sleeper_pauses(sleeper);
	before = fi_cntr_read(cntr);
	post_round(member, sleeper, &round, number);
	if (round.kind != INJECT && ct_once_in(&sleeper->chance, 3))
		sleeper_until_counted(sleeper, cntr,
				      before + (uint64_t)round.count);
	sent(member, sleeper);
	if (round.kind == FETCH)
		REQUIRE(((uint64_t *)member->local.data)[1] == 0);
	if (needs_word(round.kind)) {
		sleeper_pauses(sleeper);
		post_send(member, sleeper, CT_SEND, round.to, number, 0, 8);
		sent(member, sleeper);
	}
}

static void until_messages(struct member *member, struct sleeper *sleeper,
			   const struct round *round, int number)
{
	size_t len = needs_word(round->kind) ? 8 : round->len;
	struct fid_cntr *cntr = member->peer.cntr[CT_CNTR_RECV];
	uint64_t before = fi_cntr_read(cntr);

	for (int i = 0; i < round->count; i++)
		post_receive(member, sleeper, number, i, len);
	if (ct_once_in(&sleeper->chance, 2))
		sleeper_pauses(sleeper);
	if (ct_once_in(&sleeper->chance, 3))
		sleeper_until_counted(sleeper, cntr,
				      before + (uint64_t)round->count);
	have_come(member, sleeper);
	for (int i = 0; i < round->count && !needs_word(round->kind); i++)
		REQUIRE(ct_holds(received(member, i, len), len,
				 script_pattern(member->season, number, i)));
}

/* Until the counter of the others' writes has counted this one. */
static void until_written(struct member *member, struct sleeper *sleeper,
			  const unsigned char *data, size_t len,
			  unsigned pattern)
{
	struct fid_cntr *cntr = member->peer.cntr[CT_CNTR_REMOTE_WRITE];

	for (;;) {
		uint64_t before = fi_cntr_read(cntr);

		/* Data that has not arrived is not counted yet, either. */
		if (ct_holds(data, len, pattern))
			return;
		sleeper_until_counted(sleeper, cntr, before + 1);
	}
}

void round_receive(struct member *member, struct sleeper *sleeper, int number)
{
	struct round round = script_round(member->script, member->season,
					  number);
	unsigned char *data = member->window.data + (size_t)number * LONGEST;
	unsigned pattern = script_pattern(member->season, number, 0);

	if (round.to != member->self)
		return;
	watch_part(kind_name(round.kind), member->season, number);
	sleeper_pauses(sleeper);
	if (round.kind == WRITE_COUNTED)
		until_written(member, sleeper, data, round.len, pattern);
	else if (round.kind == WRITE_DATA)
		sleeper_until_done(sleeper, member->peer.rx.fid, 1ULL << number);
	else
		until_messages(member, sleeper, &round, number);
	if (round.kind >= WRITE && round.kind <= WRITE_DATA)
		REQUIRE(ct_holds(data, round.len, pattern));
	if (round.kind == FETCH)
		REQUIRE(*(uint64_t *)(member->window.data + WORDS +
				      (size_t)number * 8) == 1);
}
