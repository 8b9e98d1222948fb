/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Messages of mesh: in every form, into single receives and buffers for several, of anybody or of a
 * certain sender, looked for, claimed and discarded. */
#include <string.h>

#include "check.h"
#include "mesh.h"
#include "pattern.h"

uint32_t *number_of(struct member *from, int other, int class)
{
	return &from->sent[other * CLASSES + class];
}

static bool is_in(const uint64_t *bits, uint32_t number)
{
	return bits[number / 64] >> number % 64 & 1;
}

static void put_in(uint64_t *bits, uint32_t number)
{
	bits[number / 64] |= UINT64_C(1) << number % 64;
}

bool has_seen(const struct member *to, int from, int class, uint32_t number)
{
	return is_in(to->seen[from * CLASSES + class].bits, number);
}

bool has_failed(const struct member *to, int from, int class, uint32_t number)
{
	return is_in(to->seen[from * CLASSES + class].failed, number);
}

static unsigned seed_of(const struct head *head)
{
	return head->from * 31 + head->class * 7 + head->number;
}

/* The immediate data of a message. */
static uint64_t data_of(uint32_t from, uint32_t number)
{
	return (uint64_t)from << 32 | number;
}

/* A message of a member has been matched by a receive, which has this place among all of them. */
static void seen_by(struct member *to, uint32_t from, int class, uint32_t number, long posted)
{
	struct seen *seen;

	REQUIRE(from < (uint32_t)count && number < NUMBERS);
	seen = &to->seen[(int)from * CLASSES + class];
	REQUIRE(!is_in(seen->bits, number));
	put_in(seen->bits, number);
	/* Messages in one buffer may complete in any order. */
	if (seen->is_any && posted != seen->posted && (number > seen->top) != (posted > seen->posted)) {
		REQUIRE(breaks);
		put_in(seen->late, number < seen->top ? number : seen->top);
	}
	if (!seen->is_any || number > seen->top) {
		seen->is_any = true;
		seen->top = number;
		seen->posted = posted;
	}
	if (!is_in(seen->failed, number))
		to->outstanding--;
	tally.messages++;
}

static void arrived(struct operation *op, const unsigned char *bytes, const struct ct_completion *done)
{
	struct member *to = &members[op->owner];
	struct head head;

	REQUIRE(done->len >= sizeof(head) && done->len <= LONGEST);
	memcpy(&head, bytes, sizeof(head));
	REQUIRE(head.from < (uint32_t)count && head.class == (uint32_t)op->class && head.len == done->len);
	REQUIRE(ct_holds(bytes + sizeof(head), done->len - sizeof(head), seed_of(&head)));
	if (op->is_directed)
		REQUIRE(head.from == (uint32_t)op->other);
	if (done->flags & FI_REMOTE_CQ_DATA)
		REQUIRE(done->data == data_of(head.from, head.number));
	if (ct_has(&to->peer, FI_SOURCE))
		REQUIRE(done->src == to->others[head.from]);
	if (op->what == CLAIMED)
		REQUIRE(head.from == (uint32_t)op->other && head.number == op->number);
	else
		seen_by(to, head.from, op->class, head.number, op->posted);
}

/* The send of a message has failed: it may come once more, or not. */
static void send_failed(const struct operation *op)
{
	struct member *to = &members[op->other];
	struct seen *seen = &to->seen[op->owner * CLASSES + op->class];

	put_in(seen->failed, op->number);
	if (!is_in(seen->bits, op->number))
		to->outstanding--;
}

static void receive_claimed(struct operation *op)
{
	struct member *to = &members[op->owner];
	bool discards = ct_once_in(&chance, 3);
	struct ct_message message = {
		.tagged = true, .tag = PEEKED, .from = FI_ADDR_UNSPEC, .flags = FI_CLAIM, .buf = op->bytes,
		.len = LONGEST, .desc = to->buffers.desc, .context = &op->context,
	};
	ssize_t ret;

	if (discards) {
		message.flags |= FI_DISCARD;
		message.buf = NULL;
		message.len = 0;
		message.desc = NULL;
	}
	op->what = CLAIMED;
	op->flags = message.flags;
	op->is_under_way = true;
	ret = CT_POST(&to->peer, ct_recv(&to->peer, CT_RECVMSG, &message));
	if (ret == -FI_ENOMSG && breaks) {
		/* Its connection has ended before all of it had arrived. */
		op->is_under_way = false;
		put_in(to->seen[op->other * CLASSES + PEEKED].late, op->number);
		tally.failed++;
		return;
	}
	OK(ret);
}

/* A message was found that waits for a receive. */
static void found(struct operation *op, const struct ct_completion *done)
{
	uint32_t from = (uint32_t)(done->data >> 32);

	REQUIRE(done->flags & FI_REMOTE_CQ_DATA);
	op->other = (int)from;
	op->number = (uint32_t)done->data;
	if (op->flags & (FI_CLAIM | FI_DISCARD))
		seen_by(&members[op->owner], from, PEEKED, op->number, op->posted);
	if (op->flags & FI_CLAIM)
		receive_claimed(op);
	tally.claimed += !!(op->flags & FI_CLAIM);
	tally.discarded += !!(op->flags & FI_DISCARD);
}

void message_done(struct operation *op, const struct ct_completion *done)
{
	switch (op->what) {
	case SEND:
		members[op->owner].counted[CT_CNTR_SEND].done++;
		break;
	case RECEIVE:
		arrived(op, op->bytes, done);
		break;
	case RECEIVE_SEVERAL:
		op->is_under_way = !(done->flags & FI_MULTI_RECV);
		if (done->len) {
			const unsigned char *at = done->buf;

			REQUIRE(at >= op->bytes && at + done->len <= op->bytes + ROOM);
			arrived(op, at, done);
		}
		break;
	case PEEK:
		found(op, done);
		break;
	case CLAIMED:
		if (!(op->flags & FI_DISCARD))
			arrived(op, op->bytes, done);
		break;
	default:
		REQUIRE(false);
	}
}

void message_failed(struct operation *op, const struct ct_completion *done)
{
	bool receives = op->what == RECEIVE || op->what == RECEIVE_SEVERAL;

	if (op->what == PEEK && done->err == FI_ENOMSG)
		return;
	if (receives && done->err == FI_ECANCELED) {
		tally.cancelled++;
		return;
	}
	REQUIRE(breaks);
	tally.failed++;
	/* The message that failed may not be the last one in the buffer. */
	if (op->what == RECEIVE_SEVERAL)
		op->is_under_way = !(done->flags & FI_MULTI_RECV);
	if (op->what == SEND) {
		members[op->owner].counted[CT_CNTR_SEND].failed++;
		send_failed(op);
	}
}

static int posted_of(const struct member *member, int class)
{
	int posted = 0;

	for (int i = 0; i < RECEIVES; i++)
		posted += member->receives[i].is_under_way && member->receives[i].class == class;
	return posted;
}

static enum ct_recv_form receive_form(void)
{
	return (enum ct_recv_form)ct_below(&chance, CT_RECV_FORMS);
}

static void post_receive_of(struct member *member, int class, int from)
{
	struct operation *op = idle(member->receives, RECEIVES);
	struct ct_message message = {
		.tagged = class > 0, .tag = (uint64_t)class, .len = LONGEST, .pieces = 1 + ct_below(&chance, 3),
		.from = from < 0 ? FI_ADDR_UNSPEC : member->others[from], .desc = member->buffers.desc,
	};

	if (!op || posted_of(member, class) >= RECEIVES / CLASSES)
		return;
	op->what = RECEIVE;
	op->is_under_way = true;
	op->is_directed = from >= 0;
	op->other = from;
	op->class = class;
	op->posted = member->posted++;
	message.buf = op->bytes;
	message.context = &op->context;
	POST(&member->peer, ct_recv(&member->peer, receive_form(), &message));
}

void post_receive(struct member *member, int class)
{
	bool names = class == DIRECTED && ct_has(&member->peer, FI_DIRECTED_RECV) && ct_once_in(&chance, 2);

	if (class == TO_SEVERAL && ct_once_in(&chance, 3))
		post_several(member);
	else
		post_receive_of(member, class, names ? (int)ct_below(&chance, (uint64_t)count) : -1);
}

void post_several(struct member *member)
{
	struct operation *op = idle(member->several, SEVERAL);
	struct ct_message message = {
		.len = ROOM, .from = FI_ADDR_UNSPEC, .desc = member->buffers.desc, .flags = FI_MULTI_RECV,
	};

	if (!op || !ct_has(&member->peer, FI_MULTI_RECV))
		return;
	op->what = RECEIVE_SEVERAL;
	op->is_under_way = true;
	op->is_directed = false;
	op->class = TO_SEVERAL;
	op->posted = member->posted++;
	message.buf = op->bytes;
	message.context = &op->context;
	POST(&member->peer, ct_recv(&member->peer, CT_RECVMSG, &message));
}

void peek(struct member *member)
{
	static const uint64_t kinds[] = { 0, FI_CLAIM, FI_CLAIM, FI_DISCARD };
	struct operation *op = idle(member->peeks, PEEKS);
	struct ct_message message = { .tagged = true, .tag = PEEKED, .from = FI_ADDR_UNSPEC };

	if (!op)
		return;
	op->what = PEEK;
	op->is_under_way = true;
	op->is_directed = false;
	op->class = PEEKED;
	op->flags = FI_PEEK | kinds[ct_below(&chance, 4)];
	op->posted = member->posted++;
	message.flags = op->flags;
	message.context = &op->context;
	POST(&member->peer, ct_recv(&member->peer, CT_RECVMSG, &message));
}

/* A form in which a message of this length can be sent. Where connections break, what matters is which
 * messages have been delivered. */
static enum ct_send_form send_form(const struct member *from, int class, size_t len)
{
	enum ct_send_form form;

	do {
		form = breaks ? class == PEEKED ? CT_SENDMSG_DATA : CT_SENDMSG
			      : (enum ct_send_form)ct_below(&chance, CT_SEND_FORMS);
	} while (len > ct_send_limit(&from->peer, form) || (class == PEEKED && !ct_send_has_data(form)));
	return form;
}

void post_send(struct member *from, int other, int class)
{
	static const size_t lengths[] = { 16, 17, 64, 200, 1000, 4096, 9000, LONGEST };
	struct operation *op = idle(from->sends, SENDS);
	struct head head = {
		.from = (uint32_t)(from - members), .class = (uint32_t)class,
		.number = *number_of(from, other, class),
	};
	struct ct_message message = {
		.tagged = class > 0, .tag = (uint64_t)class, .desc = from->buffers.desc,
		.pieces = 1 + ct_below(&chance, 3), .data = data_of(head.from, head.number),
	};
	enum ct_send_form form;
	ssize_t ret;

	if (!op)
		return;
	message.len = lengths[ct_below(&chance, 8)];
	message.len -= ct_below(&chance, message.len - sizeof(head) + 1);
	head.len = (uint32_t)message.len;
	memcpy(op->bytes, &head, sizeof(head));
	ct_fill(op->bytes + sizeof(head), message.len - sizeof(head), seed_of(&head));
	message.buf = op->bytes;
	message.context = &op->context;
	op->what = SEND;
	op->other = other;
	op->class = class;
	op->number = head.number;
	if (breaks)
		message.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
	form = send_form(from, class, message.len);
	from->peer.to = from->others[other];
	ret = ct_send(&from->peer, form, &message);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	op->is_under_way = ct_send_completes(form);
	if (!op->is_under_way) {
		/* The library has a copy. */
		memset(op->bytes, CANARY, message.len);
		from->counted[CT_CNTR_SEND].done++;
	}
	(*number_of(from, other, class))++;
	members[other].outstanding++;
}

void cancel_one(struct member *member)
{
	uint64_t which = ct_below(&chance, RECEIVES + SEVERAL);
	struct operation *op = which < RECEIVES ? &member->receives[which] : &member->several[which - RECEIVES];

	if (op->is_under_way)
		(void)fi_cancel(&member->peer.ep->fid, &op->context);
}

void cancel_directed(struct member *member)
{
	for (int i = 0; i < RECEIVES; i++) {
		struct operation *op = &member->receives[i];

		if (op->is_under_way && op->is_directed)
			(void)fi_cancel(&member->peer.ep->fid, &op->context);
	}
}

void take_what_is_left(struct member *member)
{
	if (!member->outstanding)
		return;
	for (int class = 0; class < CLASSES; class++)
		if (posted_of(member, class) < 2)
			post_receive_of(member, class, -1);
}

void check_order(const struct member *member)
{
	for (int i = 0; i < count * CLASSES; i++)
		for (int word = 0; word < NUMBERS / 64; word++) {
			const struct seen *seen = &member->seen[i];

			REQUIRE(!(seen->late[word] & ~seen->failed[word]));
		}
}
