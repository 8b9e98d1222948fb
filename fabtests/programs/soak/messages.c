/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Messages. All about one follows from its epoch, lane, station and number, which are
 * in its tag and, if it is not tagged, in its first bytes: so the receiver knows
 * what to expect, and no message can be in the place of another one.
 */
#include <stdio.h>
#include <string.h>

#include "pattern.h"
#include "soak.h"

struct text {
	bool tagged;
	enum ct_send_form form;
	size_t len, pieces;
	unsigned seed;
	uint64_t data;
};

struct header {
	uint32_t epoch, number;
	uint16_t lane, station;
	uint32_t seed;
};

static uint64_t tag_of(int lane, unsigned number)
{
	return (uint64_t)(unsigned)lane << 48 |
	       (uint64_t)(atomic_load(&board->epoch) & 0xffff) << 32 | number;
}

static size_t some_length(struct ct_random *random, bool tagged)
{
	switch (ct_below(random, 16)) {
	case 0:
		return tagged ? 0 : HEADER;
	case 1:
		return 1 + ct_below(random, UNTAGGED);
	case 2:
		if (!tagged)
			return UNTAGGED;
		return ct_once_in(random, 4) ? 1 + ct_below(random, LONG) : UNTAGGED;
	case 3:
		if (tagged && ct_once_in(random, 16))
			return ct_once_in(random, 4) ? LONGEST : LONG;
		return 1 + ct_below(random, 4096);
	default:
		return 1 + ct_below(random, 256);
	}
}

static struct text text_of(const struct ct_peer *peer, int lane, int station, unsigned number)
{
	struct ct_random random = { board->seed + ((uint64_t)atomic_load(&board->epoch) << 40) +
				    ((uint64_t)(unsigned)lane << 32) +
				    ((uint64_t)(unsigned)station << 24) + number };
	struct text text = { 0 };
	size_t limit;

	text.tagged = ct_has(peer, FI_TAGGED) && ct_once_in(&random, 2);
	text.form = ct_below(&random, CT_SEND_FORMS);
	if (!ct_send_offered(peer, text.form) || lane >= WORKERS)
		text.form = ct_once_in(&random, 2) ? CT_INJECT : CT_SEND;
	text.len = some_length(&random, text.tagged);
	/* What guests send, and what a datagram holds, is short. */
	limit = ct_send_limit(peer, text.form);
	if (lane >= WORKERS && limit > 4096)
		limit = 4096;
	if (text.len > limit)
		text.len = ct_below(&random, limit + 1);
	if (!text.tagged && text.len < HEADER)
		text.len = HEADER;
	if (text.len > limit)
		text.form = CT_SEND;
	text.pieces = 1 + ct_below(&random, 4);
	text.seed = (unsigned)ct_bits(&random);
	text.data = (uint32_t)ct_bits(&random);
	if (peer->info->domain_attr->cq_data_size < 4)
		text.data &= (1ULL << (8 * peer->info->domain_attr->cq_data_size)) - 1;
	return text;
}

static void write_text(unsigned char *buf, const struct text *text, int lane, int station,
		       unsigned number)
{
	struct header header = { atomic_load(&board->epoch), number, (uint16_t)lane,
				 (uint16_t)station, text->seed };

	ct_fill(buf, text->len, text->seed);
	if (!text->tagged)
		memcpy(buf, &header, sizeof(header));
}

static struct soak_op *with_room(struct soak_ops *ops, size_t room)
{
	for (int i = 0; i < ops->count; i++)
		if (atomic_load(&ops->ops[i].state) == IDLE && ops->ops[i].room >= room)
			return &ops->ops[i];
	return NULL;
}

static void mark(_Atomic uint64_t *bits, unsigned number)
{
	atomic_fetch_or(&bits[number / 64], 1ULL << (number % 64));
}

static bool marked(_Atomic uint64_t *bits, unsigned number)
{
	return atomic_load(&bits[number / 64]) >> (number % 64) & 1;
}

/* The message waits until the station's counter says so: one more than it will be by the
 * additions that are due. */
static ssize_t send_later(struct soak_worker *worker, struct soak_op *op, const struct text *text,
			  uint64_t tag)
{
	struct iovec iov = { op->buf, text->len };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = worker->peer.to, .tag = tag,
		.context = &op->trigger,
	};
	uint64_t now = fi_cntr_read(worker->station->trigger);

	memset(&op->trigger, 0, sizeof(op->trigger));
	op->trigger.event_type = FI_TRIGGER_THRESHOLD;
	op->trigger.trigger.threshold.cntr = worker->station->trigger;
	op->trigger.trigger.threshold.threshold = now + worker->pending + 1;
	return fi_tsendmsg(worker->peer.ep, &msg, FI_TRIGGER | FI_COMPLETION);
}

void soak_send_from(struct soak_worker *worker, struct ct_peer *peer, int lane, bool maybe)
{
	int to = (int)ct_below(&worker->random, (uint64_t)board->mode.stations);
	unsigned number = atomic_load(&board->sent[lane][to]);
	struct text text = text_of(peer, lane, to, number);
	bool completes = ct_send_completes(text.form), later;
	struct soak_op *op = with_room(&worker->sends, text.len);
	struct ct_message message;
	ssize_t ret;

	if (!op || number == NUMBERS ||
	    number - atomic_load(&board->received[lane][to]) >= WINDOW)
		return;
	peer->to = worker->station->to[to];
	op->lane = lane;
	op->to = to;
	op->number = number;
	op->cancelling = false;
	op->len = text.len;
	write_text(op->buf, &text, lane, to, number);
	message = (struct ct_message) {
		.tagged = text.tagged, .buf = op->buf, .len = text.len, .pieces = text.pieces,
		.tag = tag_of(lane, number), .data = text.data, .context = op,
	};
	/* Before it can arrive. */
	if (maybe)
		mark(board->maybe[lane][to], number);
	atomic_store(&op->state, completes ? POSTED : DONE);
	/* One worker of a station has what waits for its counter, whose value it knows. */
	later = text.tagged && text.form == CT_SENDMSG && worker->station->trigger &&
		!worker->index && lane < WORKERS;
	atomic_fetch_add(&board->sent[lane][to], 1);
	ret = later ? send_later(worker, op, &text, message.tag)
		    : ct_send(peer, text.form, &message);
	if (ret) {
		NEED(ret == -FI_EAGAIN, "%s of %zu bytes: %s", ct_send_name(text.form), text.len,
		     fi_strerror((int)-ret));
		atomic_fetch_sub(&board->sent[lane][to], 1);
		atomic_store(&op->state, IDLE);
		return;
	}
	if (later)
		worker->pending++;
	atomic_fetch_add(&board->messages, 1);
	atomic_fetch_add(&board->bytes, text.len);
	if (!completes) {
		memset(op->buf, 0xee, text.len);
		atomic_store(&op->state, IDLE);
	}
}

void soak_send(struct soak_worker *worker)
{
	soak_send_from(worker, &worker->peer, worker->number, false);
}

void soak_release_triggered(struct soak_worker *worker)
{
	if (worker->pending) {
		OK(fi_cntr_add(worker->station->trigger, 1));
		worker->pending--;
	}
}

void soak_was_sent(struct soak_op *op, const struct ct_completion *done)
{
	if (done->err) {
		NEED((done->err == FI_ECANCELED && op->cancelling) ||
		     marked(board->maybe[op->lane][op->to], op->number),
		     "the send of message %u from %d to %d: %s (%d)", op->number, op->lane, op->to,
		     fi_strerror(done->err), done->prov_errno);
		mark(board->excused[op->lane][op->to], op->number);
		atomic_fetch_add(&board->received[op->lane][op->to], 1);
		atomic_fetch_add(&board->cancelled, 1);
	}
	atomic_store(&op->state, IDLE);
}

void soak_receive(struct soak_worker *worker, bool wild)
{
	struct soak_op *op = soak_idle(&worker->receives);
	bool tagged = ct_has(&worker->peer, FI_TAGGED) && ct_once_in(&worker->random, 2);
	struct ct_message message = { .from = FI_ADDR_UNSPEC };
	enum ct_recv_form form = ct_below(&worker->random, CT_RECV_FORMS);
	ssize_t ret;

	if (!tagged && worker->station->caps & FI_MULTI_RECV && worker->multis.count &&
	    ct_once_in(&worker->random, 4)) {
		op = soak_idle(&worker->multis);
		form = CT_RECVMSG;
		message.flags = FI_MULTI_RECV;
	}
	if (!op)
		return;
	/* Some of each kind. */
	if (op->kind == A_RECEIVE) {
		int same = 0;

		for (int i = 0; i < worker->receives.count; i++)
			same += atomic_load(&worker->receives.ops[i].state) == POSTED &&
				worker->receives.ops[i].tagged == tagged;
		if (same >= worker->receives.count / 2 && ct_has(&worker->peer, FI_TAGGED))
			return;
	}
	op->tagged = tagged;
	op->wild = wild || !tagged || ct_once_in(&worker->random, 2);
	op->cancelling = false;
	op->len = op->room;
	message.tagged = tagged;
	if (tagged && op->wild) {
		message.ignore = UINT64_MAX;
	} else if (tagged) {
		int lane = (int)ct_below(&worker->random, WORKERS);
		unsigned next = atomic_load(&board->received[lane][worker->station->number]);

		message.tag = tag_of(lane, next + (unsigned)ct_below(&worker->random, 8));
	}
	if (!wild && tagged && ct_once_in(&worker->random, 20))
		op->len = ct_below(&worker->random, 200);
	message.buf = op->buf;
	message.len = op->len;
	message.pieces = op->kind == A_MULTI ? 1 : 1 + ct_below(&worker->random, 4);
	message.context = op;
	atomic_store(&op->state, POSTED);
	ret = ct_recv(&worker->peer, form, &message);
	if (ret) {
		NEED(ret == -FI_EAGAIN, "a receive: %s", fi_strerror((int)-ret));
		atomic_store(&op->state, IDLE);
	}
}

/* A message is here, of which this much of the contents. */
static void arrived(struct soak_worker *worker, bool tagged, uint64_t tag,
		    const struct ct_completion *done, const unsigned char *buf, size_t room)
{
	int lane, station = worker->station->number;
	unsigned number, epoch;
	struct text text;
	struct header header;
	size_t kept;

	if (tagged) {
		lane = (int)(tag >> 48);
		epoch = tag >> 32 & 0xffff;
		number = (uint32_t)tag;
	} else {
		memcpy(&header, buf, sizeof(header));
		lane = header.lane;
		epoch = header.epoch & 0xffff;
		number = header.number;
		NEED(header.station == station, "a message for station %d came to %d (lane %d, "
		     "epoch %u of %u, number %u)", header.station, station, lane, header.epoch,
		     atomic_load(&board->epoch), number);
	}
	/* A datagram may be late, and what a guest sent that did not wait for its end. */
	if ((board->mode.lossy || lane >= WORKERS) &&
	    epoch != (atomic_load(&board->epoch) & 0xffff))
		return;
	NEED(lane < LANES && number < NUMBERS && epoch == (atomic_load(&board->epoch) & 0xffff),
	     "a message that nobody sent: lane %d, epoch %u of %u, number %u", lane, epoch,
	     atomic_load(&board->epoch), number);
	NEED(number < atomic_load(&board->sent[lane][station]),
	     "message %u from %d, of which only %u were sent", number, lane,
	     atomic_load(&board->sent[lane][station]));
	text = text_of(&worker->peer, lane, station, number);
	NEED(text.tagged == tagged, "message %u from %d is tagged or not", number, lane);
	kept = text.len < room ? text.len : room;
	if (kept < text.len)
		NEED(done->err == FI_ETRUNC, "no truncation of %zu bytes to %zu: error %d",
		     text.len, room, done->err);
	else
		NEED(!done->err && done->len == text.len,
		     "message %u from %d: %zu bytes of %zu, error %s", number, lane, done->len,
		     text.len, fi_strerror(done->err));
	if (!done->err && ct_send_has_data(text.form))
		NEED(done->flags & FI_REMOTE_CQ_DATA && done->data == text.data,
		     "immediate data of message %u from %d", number, lane);
	if (buf && tagged)
		NEED(ct_holds(buf, kept, text.seed), "wrong bytes in message %u from %d (%zu)",
		     number, lane, text.len);
	if (buf && !tagged) {
		unsigned char whole[UNTAGGED];

		write_text(whole, &text, lane, station, number);
		NEED(!memcmp(buf, whole, kept), "wrong bytes in message %u from %d (%zu)", number,
		     lane, text.len);
	}
	NEED(!(atomic_fetch_or(&board->seen[lane][station][number / 64], 1ULL << (number % 64)) >>
	       (number % 64) & 1), "message %u from %d to %d came twice", number, lane, station);
	NEED(!marked(board->excused[lane][station], number) ||
	     marked(board->maybe[lane][station], number),
	     "message %u from %d to %d came, and was taken back", number, lane, station);
	atomic_fetch_add(&board->received[lane][station], 1);
}

void soak_has_come(struct soak_op *op, const struct ct_completion *done)
{
	if (done->err && done->err != FI_ETRUNC) {
		NEED(op->cancelling && done->err == FI_ECANCELED, "a receive: %s (%d)",
		     fi_strerror(done->err), done->prov_errno);
		atomic_store(&op->state, IDLE);
		return;
	}
	if (op->kind == A_RECEIVE) {
		arrived(op->worker, op->tagged, done->tag, done, op->buf, op->len);
		atomic_store(&op->state, IDLE);
		return;
	}
	if (done->flags & ~(uint64_t)FI_MULTI_RECV && done->len) {
		unsigned char *at = done->buf;

		NEED(at >= op->buf && at + done->len <= op->buf + op->room,
		     "a message outside of its buffer");
		arrived(op->worker, false, 0, done, at, (size_t)(op->buf + op->room - at));
	}
	if (done->flags & FI_MULTI_RECV)
		atomic_store(&op->state, IDLE);
}

static ssize_t ask(struct soak_worker *worker, uint64_t flags, uint64_t tag, uint64_t ignore,
		   unsigned char *buf, size_t len)
{
	struct iovec iov = { buf, len };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = buf ? 1 : 0, .addr = FI_ADDR_UNSPEC, .tag = tag,
		.ignore = ignore, .context = worker->peek,
	};

	return fi_trecvmsg(worker->peer.ep, &msg, flags);
}

/* Asks for any message that has no receive, and may claim or discard it. */
void soak_peek(struct soak_worker *worker)
{
	static const uint64_t what[] = { 0, FI_CLAIM, FI_DISCARD };
	struct soak_op *op = worker->peek;
	ssize_t ret;

	if (atomic_load(&op->state) != IDLE || !ct_has(&worker->peer, FI_TAGGED))
		return;
	op->access = ct_below(&worker->random, 3);
	atomic_store(&op->state, POSTED);
	ret = ask(worker, FI_PEEK | what[op->access], 0, UINT64_MAX, NULL, 0);
	if (ret)
		atomic_store(&op->state, IDLE);
}

/* The answer is there, or the message that was claimed. */
void soak_peeked(struct soak_worker *worker)
{
	struct soak_op *op = worker->peek;
	ssize_t ret;

	if (atomic_load(&op->state) != DONE)
		return;
	if (!op->found || !op->access) {
		atomic_store(&op->state, IDLE);
		return;
	}
	if (op->access == 2) {
		struct ct_completion done = { .len = op->len };
		struct text text = text_of(&worker->peer, (int)(op->tag >> 48),
					   worker->station->number, (uint32_t)op->tag);

		done.flags = FI_REMOTE_CQ_DATA;
		done.data = text.data;
		arrived(worker, true, op->tag, &done, NULL, LONGEST);
		atomic_store(&op->state, IDLE);
		return;
	}
	/* The context of the peek names the message. */
	op->claiming = true;
	atomic_store(&op->state, POSTED);
	ret = ask(worker, FI_CLAIM, op->tag, 0, op->buf, op->room);
	if (ret) {
		NEED(ret == -FI_EAGAIN, "a claim: %s", fi_strerror((int)-ret));
		atomic_store(&op->state, DONE);
		op->claiming = false;
	}
}

void soak_looked(struct soak_op *op, const struct ct_completion *done)
{
	if (op->claiming) {
		op->claiming = false;
		arrived(op->worker, true, done->tag, done, op->buf, op->room);
		atomic_store(&op->state, IDLE);
		return;
	}
	NEED(!done->err || done->err == FI_ENOMSG, "a peek: %s", fi_strerror(done->err));
	op->found = !done->err;
	op->tag = done->tag;
	op->len = done->len;
	atomic_store(&op->state, DONE);
}

/* Any one operation, which may be complete at the same moment. */
void soak_cancel(struct soak_worker *worker)
{
	bool send = ct_once_in(&worker->random, 2);
	struct soak_ops *ops = send ? &worker->sends : &worker->receives;
	struct soak_op *op = &ops->ops[ct_below(&worker->random, (uint64_t)ops->count)];

	if (atomic_load(&op->state) != POSTED)
		return;
	op->cancelling = true;
	fi_cancel(&worker->peer.ep->fid, op);
}

void soak_cancel_receives(struct soak_worker *worker, bool all)
{
	struct soak_ops *kinds[] = { &worker->receives, &worker->multis };

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < kinds[k]->count; i++) {
			struct soak_op *op = &kinds[k]->ops[i];

			if (atomic_load(&op->state) != POSTED || (op->wild && !all))
				continue;
			op->cancelling = true;
			fi_cancel(&worker->peer.ep->fid, op);
		}
}

bool soak_settled(struct soak_worker *worker, char *missing, size_t size)
{
	int station = worker->station->number;

	for (int lane = 0; lane < LANES; lane++) {
		unsigned sent = atomic_load(&board->sent[lane][station]);

		for (unsigned n = 0; n < sent && !board->mode.lossy; n++) {
			struct text text;

			if (marked(board->seen[lane][station], n) ||
			    marked(board->excused[lane][station], n) ||
			    marked(board->maybe[lane][station], n))
				continue;
			text = text_of(&worker->peer, lane, station, n);
			snprintf(missing, size, "message %u of %u from %d to %d never came: %zu "
				 "bytes, %s, %stagged", n, sent, lane, station, text.len,
				 ct_send_name(text.form), text.tagged ? "" : "un");
			return false;
		}
	}
	return true;
}
