/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Access to the memory of stations. It has cells, of which each addition counts;
 * bytes that never change, to be read; and a slot of each worker, which writes
 * there once at a time. Regions of workers end while others use them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "pattern.h"
#include "soak.h"

enum { CELLS = 64, READABLE = SLOT, SLOTS_AT = CELLS + READABLE,
       MEMORY = SLOTS_AT + WORKERS * SLOT, PATTERN = 77 };

static const uint64_t anything = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
				 FI_REMOTE_WRITE;

void soak_memory_prepare(struct soak_station *station)
{
	if (!(station->caps & FI_RMA))
		return;
	ct_memory_open(&station->peer, &station->memory, MEMORY, anything);
	ct_fill(station->memory.data + CELLS, READABLE, PATTERN);
	board->stations[station->number].addr = station->memory.addr;
	board->stations[station->number].key = station->memory.key;
	atomic_store(&board->added[station->number], 0);
	for (int i = 0; i < WORKERS; i++)
		board->written[i][station->number].len = 0;
}

static bool slot_in_use(struct soak_worker *worker, int to)
{
	for (int i = 0; i < worker->accesses.count; i++) {
		struct soak_op *op = &worker->accesses.ops[i];

		if (atomic_load(&op->state) == POSTED && op->access == ACCESS_WRITE && op->to == to)
			return true;
	}
	return false;
}

static ssize_t write_some(struct soak_worker *worker, struct soak_op *op, int to)
{
	static const enum ct_rma_form forms[] = { CT_WRITE, CT_WRITEV, CT_WRITEMSG,
						  CT_WRITEMSG_INJECT };
	enum ct_rma_form form = forms[ct_below(&worker->random, 4)];
	unsigned seed = (unsigned)ct_bits(&worker->random);
	struct ct_rma rma = {
		.buf = op->buf, .len = op->len, .pieces = 1 + ct_below(&worker->random, 4),
		.addr = board->stations[to].addr + SLOTS_AT + (uint64_t)worker->number * SLOT,
		.key = board->stations[to].key, .context = op,
	};
	ssize_t ret;

	if (op->len > ct_rma_limit(&worker->peer, form))
		form = CT_WRITE;
	ct_fill(op->buf, op->len, seed);
	ret = ct_rma(&worker->peer, form, &rma);
	if (!ret) {
		board->written[worker->number][to].seed = seed;
		board->written[worker->number][to].len = op->len;
	}
	return ret;
}

static ssize_t read_some(struct soak_worker *worker, struct soak_op *op, uint64_t addr,
			 uint64_t key)
{
	struct ct_rma rma = {
		.buf = op->buf, .len = op->len, .pieces = 1 + ct_below(&worker->random, 4),
		.addr = addr, .key = key, .context = op,
	};

	return ct_rma(&worker->peer, CT_READ + (int)ct_below(&worker->random, 3), &rma);
}

static ssize_t add(struct soak_worker *worker, struct soak_op *op, int to)
{
	uint64_t *operand = (uint64_t *)op->buf, *result = operand + 1;
	uint64_t cell = board->stations[to].addr, key = board->stations[to].key;

	*operand = 1 + ct_below(&worker->random, 100);
	op->number = (unsigned)*operand;
	if (ct_once_in(&worker->random, 2))
		return fi_atomic(worker->peer.ep, operand, 1, NULL, worker->peer.to, cell, key,
				 FI_UINT64, FI_SUM, op);
	return fi_fetch_atomic(worker->peer.ep, operand, 1, NULL, result, NULL, worker->peer.to,
			       cell, key, FI_UINT64, FI_SUM, op);
}

/* A read or a write of a region that may be closed at any time. */
static ssize_t access_doomed(struct soak_worker *worker, struct soak_op *op)
{
	int owner = (int)ct_below(&worker->random, (uint64_t)board->mode.stations *
				  (uint64_t)board->mode.threads);
	unsigned before = atomic_load(&board->doomed[owner].changes);
	uint64_t addr = atomic_load(&board->doomed[owner].addr);
	uint64_t key = atomic_load(&board->doomed[owner].key);

	if (!(before & 1) || atomic_load(&board->doomed[owner].changes) != before)
		return -FI_EAGAIN;
	op->access = ACCESS_DOOMED;
	worker->peer.to = worker->station->to[owner / board->mode.threads];
	if (ct_once_in(&worker->random, 3)) {
		struct ct_rma rma = { .buf = op->buf, .len = op->len, .addr = addr, .key = key,
				      .context = op };

		return ct_rma(&worker->peer, CT_WRITE, &rma);
	}
	return read_some(worker, op, addr, key);
}

void soak_access(struct soak_worker *worker)
{
	struct soak_op *op = soak_idle(&worker->accesses);
	int to = (int)ct_below(&worker->random, (uint64_t)board->mode.stations);
	ssize_t ret;

	if (!op || !(worker->station->caps & FI_RMA))
		return;
	op->len = ct_once_in(&worker->random, 4) ? 1 + ct_below(&worker->random, SLOT)
						 : 1 + ct_below(&worker->random, 2000);
	op->to = to;
	op->access = ct_below(&worker->random, 4);
	worker->peer.to = worker->station->to[to];
	atomic_store(&op->state, POSTED);
	switch (op->access) {
	case ACCESS_READ:
		ret = read_some(worker, op, board->stations[to].addr + CELLS,
				board->stations[to].key);
		break;
	case ACCESS_WRITE:
		/* Nothing else of this worker's is posted in between. */
		atomic_store(&op->state, IDLE);
		if (slot_in_use(worker, to))
			return;
		atomic_store(&op->state, POSTED);
		ret = write_some(worker, op, to);
		break;
	case ACCESS_ADD:
		ret = worker->station->caps & FI_ATOMIC ? add(worker, op, to) : -FI_EAGAIN;
		break;
	default:
		ret = access_doomed(worker, op);
	}
	if (ret) {
		NEED(ret == -FI_EAGAIN, "an access of kind %d: %s", op->access,
		     fi_strerror((int)-ret));
		atomic_store(&op->state, IDLE);
		return;
	}
	atomic_fetch_add(&board->accesses, 1);
}

void soak_accessed(struct soak_op *op, const struct ct_completion *done)
{
	if (op->access == ACCESS_DOOMED) {
		if (done->err)
			atomic_fetch_add(&board->refused, 1);
	} else {
		NEED(!done->err, "an access of kind %d, %zu bytes, from %d to %d: %s (%d)",
		     op->access, op->len, op->worker->number, op->to, fi_strerror(done->err),
		     done->prov_errno);
	}
	if (op->access == ACCESS_READ)
		NEED(ct_holds(op->buf, op->len, PATTERN), "wrong bytes were read (%zu)", op->len);
	if (op->access == ACCESS_ADD)
		atomic_fetch_add(&board->added[op->to], op->number);
	atomic_store(&op->state, IDLE);
}

/* Opens the worker's region, or closes it, whoever uses it. */
void soak_doom(struct soak_worker *worker)
{
	if (!(worker->station->caps & FI_RMA))
		return;
	if (worker->doomed.mr) {
		soak_doom_end(worker);
		return;
	}
	worker->doomed = (struct ct_memory) { 0 };
	{
		struct fid_mr *mr;
		uint64_t key = (uint64_t)(worker->number + 1) << 20 |
			       (atomic_load(&board->doomed[worker->number].changes) & 0xfffff);
		int mode = ct_mr_mode(&worker->peer);

		OK(fi_mr_reg(worker->peer.domain, worker->doomed_bytes, SLOT, anything, 0, key, 0,
			     &mr, NULL));
		if (mode & FI_MR_ENDPOINT) {
			OK(fi_mr_bind(mr, &worker->peer.ep->fid, 0));
			OK(fi_mr_enable(mr));
		}
		worker->doomed.mr = mr;
		atomic_store(&board->doomed[worker->number].key, fi_mr_key(mr));
		atomic_store(&board->doomed[worker->number].addr,
			     mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)worker->doomed_bytes : 0);
	}
	atomic_fetch_add(&board->doomed[worker->number].changes, 1);
}

void soak_doom_end(struct soak_worker *worker)
{
	if (!worker->doomed.mr)
		return;
	atomic_fetch_add(&board->doomed[worker->number].changes, 1);
	OK(fi_close(&worker->doomed.mr->fid));
	worker->doomed.mr = NULL;
}

bool soak_memory_settled(struct soak_station *station, char *missing, size_t size)
{
	int number = station->number;
	uint64_t sum, added = atomic_load(&board->added[number]);

	if (!station->memory.mr)
		return true;
	sum = *(volatile uint64_t *)station->memory.data;
	if (sum != added) {
		snprintf(missing, size, "the cell of station %d has %llu, but %llu were added",
			 number, (unsigned long long)sum, (unsigned long long)added);
		return false;
	}
	for (int i = 0; i < WORKERS; i++) {
		size_t len = board->written[i][number].len;

		if (ct_holds(station->memory.data + SLOTS_AT + (size_t)i * SLOT, len,
			     board->written[i][number].seed))
			continue;
		snprintf(missing, size, "%zu bytes that worker %d wrote to station %d are not there",
			 len, i, number);
		return false;
	}
	return true;
}
