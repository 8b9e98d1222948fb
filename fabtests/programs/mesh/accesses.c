/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* One-sided operations of mesh, on regions that are closed meanwhile. Each member has a part of each
 * other one's region for its own, which it writes, reads back, and counts in; and there is a place where
 * all count. */
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "mesh.h"
#include "pattern.h"

/* Where an initiator writes, where it counts, and where all of them do. */
static size_t own_bytes(int initiator)
{
	return (size_t)initiator * CELL;
}

static size_t own_sum(int initiator)
{
	return (size_t)count * CELL + (size_t)initiator * sizeof(uint64_t);
}

static size_t common_sum(void)
{
	return own_sum(count);
}

size_t memory_size(void)
{
	return common_sum() + sizeof(uint64_t);
}

void look_at_former(const struct member *member)
{
	for (int i = 0; i < FORMER; i++)
		for (size_t at = 0; member->former[i] && at < memory_size(); at++)
			REQUIRE(member->former[i][at] == CANARY);
}

void open_region(struct member *member)
{
	ct_memory_open(&member->peer, &member->memory, memory_size(), FI_REMOTE_READ | FI_REMOTE_WRITE);
	member->region++;
}

void close_region(struct member *member)
{
	unsigned char **former = &member->former[member->region % FORMER];
	unsigned char *kept = member->memory.data;

	look_at_former(member);
	free(*former);
	*former = NULL;
	member->memory.data = NULL;
	member->is_closing = true;
	ct_memory_close(&member->memory);
	memset(kept, CANARY, memory_size());
	*former = kept;
	open_region(member);
	member->is_closing = false;
	tally.closed++;
}

/* Whether an access was, or is to be, one to the region that is open. */
static bool is_open(const struct operation *op)
{
	const struct member *to = &members[op->other];

	return op->region == to->region && !to->is_closing;
}

/* What this member has added to the present region of another one. */
static struct added *added_to(struct member *from, int other)
{
	struct added *added = &from->added[other];

	if (added->region != members[other].region)
		*added = (struct added) { .region = members[other].region };
	return added;
}

static void read_back(struct operation *op)
{
	struct member *from = &members[op->owner], *to = &members[op->other];

	if (!is_open(op))
		return;
	memset(op->bytes, 0, op->len);
	op->what = READ;
	op->is_under_way = true;
	POST(&from->peer, fi_read(from->peer.ep, op->bytes, op->len, from->buffers.desc, from->others[op->other],
				  to->memory.addr + own_bytes(op->owner), to->memory.key, &op->context));
}

/* Writes without a completion, and reads what is there then, which the read may not overtake. */
static void inject_and_read(struct operation *op)
{
	struct member *from = &members[op->owner], *to = &members[op->other];
	struct ct_rma write = {
		.buf = op->bytes, .addr = to->memory.addr + own_bytes(op->owner), .key = to->memory.key,
	};
	ssize_t ret;

	op->len = 1 + ct_below(&chance, ct_rma_limit(&from->peer, CT_INJECT_WRITE));
	if (op->len > CELL)
		op->len = CELL;
	write.len = op->len;
	ct_fill(op->bytes, op->len, op->seed);
	from->peer.to = from->others[op->other];
	ret = ct_rma(&from->peer, CT_INJECT_WRITE, &write);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	from->counted[CT_CNTR_WRITE].done++;
	from->counted[CT_CNTR_WRITE].perhaps++;
	read_back(op);
}

void post_write(struct member *from, int other)
{
	struct operation *op = &from->access;
	struct member *to = &members[other];
	struct iovec iov;
	struct fi_rma_iov place;
	struct fi_msg_rma message = {
		.msg_iov = &iov, .desc = &from->buffers.desc, .iov_count = 1, .addr = from->others[other],
		.rma_iov = &place, .rma_iov_count = 1, .context = &op->context,
	};
	ssize_t ret;

	if (op->is_under_way || to->is_closing)
		return;
	op->what = WRITE;
	op->other = other;
	op->region = to->region;
	op->seed = (unsigned)ct_bits(&chance);
	if (!breaks && from->peer.info->tx_attr->msg_order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW) &&
	    ct_once_in(&chance, 2)) {
		inject_and_read(op);
		return;
	}
	op->len = 1 + ct_below(&chance, CELL);
	ct_fill(op->bytes, op->len, op->seed);
	iov = (struct iovec) { op->bytes, op->len };
	place = (struct fi_rma_iov) {
		.addr = to->memory.addr + own_bytes(op->owner), .len = op->len, .key = to->memory.key,
	};
	ret = fi_writemsg(from->peer.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	op->is_under_way = true;
}

/* Adds one where all count, or where only this one does and learns of what was there. */
void post_atomic(struct member *from, int other)
{
	struct operation *op = &from->access;
	struct member *to = &members[other];
	bool fetches = ct_once_in(&chance, 2);
	/* Result and operand. */
	uint64_t *values = (uint64_t *)(void *)op->bytes;
	struct fi_ioc ioc = { .addr = &values[1], .count = 1 }, result = { .addr = &values[0], .count = 1 };
	struct fi_rma_ioc place = { .count = 1, .key = to->memory.key };
	struct fi_msg_atomic message = {
		.msg_iov = &ioc, .desc = &from->buffers.desc, .iov_count = 1, .addr = from->others[other],
		.rma_iov = &place, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = &op->context,
	};
	ssize_t ret;

	if (op->is_under_way || to->is_closing || !ct_has(&from->peer, FI_ATOMIC))
		return;
	op->what = fetches ? FETCH : ADD;
	op->other = other;
	op->region = to->region;
	values[0] = UINT64_MAX;
	values[1] = 1;
	place.addr = to->memory.addr + (fetches ? own_sum(op->owner) : common_sum());
	ret = fetches ? fi_fetch_atomicmsg(from->peer.ep, &message, &result, &from->buffers.desc, 1, FI_COMPLETION)
		      : fi_atomicmsg(from->peer.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	op->is_under_way = true;
}

static bool is_counted_as_write(const struct operation *op)
{
	return op->what == WRITE || op->what == ADD;
}

static struct counted *counted_as(const struct operation *op)
{
	return &members[op->owner].counted[is_counted_as_write(op) ? CT_CNTR_WRITE : CT_CNTR_READ];
}

static void access_failed(struct operation *op, struct added *added)
{
	REQUIRE(breaks || !added);
	counted_as(op)->failed++;
	tally.failed++;
	if (added && op->what == ADD)
		added->common_perhaps++;
	if (added && op->what == FETCH)
		added->own_perhaps++;
}

static void fetched(const struct operation *op, struct added *added)
{
	uint64_t was;

	memcpy(&was, op->bytes, sizeof(was));
	REQUIRE(was >= added->own && was <= added->own + added->own_perhaps);
	added->own_perhaps -= was - added->own;
	added->own = was + 1;
}

void access_done(struct operation *op, const struct ct_completion *done)
{
	struct added *added = is_open(op) ? added_to(&members[op->owner], op->other) : NULL;

	if (done->err) {
		access_failed(op, added);
		return;
	}
	counted_as(op)->done++;
	switch (op->what) {
	case WRITE:
		read_back(op);
		break;
	case READ:
		if (is_open(op))
			REQUIRE(ct_holds(op->bytes, op->len, op->seed));
		tally.accesses++;
		break;
	case FETCH:
		if (added)
			fetched(op, added);
		tally.atomics++;
		break;
	case ADD:
		if (added)
			added->common++;
		tally.atomics++;
		break;
	default:
		REQUIRE(false);
	}
}

void check_sums(const struct member *member)
{
	int self = (int)(member - members);
	uint64_t least = 0, most = 0, is;

	for (int i = 0; i < count; i++) {
		struct added *added = added_to(&members[i], self);

		least += added->common;
		most += added->common + added->common_perhaps;
	}
	memcpy(&is, member->memory.data + common_sum(), sizeof(is));
	REQUIRE(is >= least && is <= most);
}
