/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Scalable endpoints (fi_endpoint(3), SCALABLE ENDPOINTS): contexts of each direction behind
 * one address, which peers name by fi_rx_addr(3). All sides are in one process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pattern.h"
#include "scalable.h"
#include "transfer.h"
#include "wait.h"

enum { CONTEXTS = CT_CONTEXTS, BITS = CT_CONTEXT_BITS, MOST = 1 << 20 };

static unsigned char out[MOST], in[MOST];
static struct fi_context2 tx_context[CONTEXTS], rx_context[CONTEXTS];
static enum fi_threading threading;
/* The attributes of the domain say nothing of several contexts. */
static bool is_plain_domain;

static void several(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = CONTEXTS;
	hints->ep_attr->rx_ctx_cnt = CONTEXTS;
	hints->caps |= FI_NAMED_RX_CTX;
}

static void as_a_plain_one(struct fi_info *info)
{
	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
	info->caps &= ~FI_RMA_EVENT;
}

static void open_objects(struct ct_side *side, uint64_t caps)
{
	ct_open_objects(side, &(struct ct_spec) {
		.caps = caps, .hint = several, .threading = threading,
		.open = is_plain_domain ? as_a_plain_one : NULL,
	});
}

static void open_scalable(struct ct_side *side, uint64_t caps)
{
	open_objects(side, caps);
	ct_open_sep(side);
	for (int i = 0; i < CONTEXTS; i++) {
		ct_open_tx(side, i);
		ct_open_rx(side, i);
	}
	OK(fi_enable(side->sep));
}

static void open_plain(struct ct_side *side, uint64_t caps)
{
	ct_open_objects(side, &(struct ct_spec) { .caps = caps });
	ct_open_plain(side);
}

/* One without a context is that of a message which nobody waits for. */
static struct ct_completion done(struct ct_cq *queue, void *context)
{
	struct ct_completion completion;

	do
		completion = ct_next_of(queue);
	while (!completion.err && !completion.context);
	if (completion.err)
		ct_fail(__FILE__, __LINE__, "a completion with error %s",
			fi_strerror(completion.err));
	REQUIRE(completion.context == context);
	return completion;
}

static void fill(size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char)(i * 31 + seed);
	memset(in, 0, len);
}

/* A message from context i of one side to context j of the other. */
static void message(struct ct_side *from, int i, struct ct_side *to, int j,
		    fi_addr_t addr, fi_addr_t source, size_t len, bool expected,
		    bool tagged)
{
	struct ct_completion got;
	struct fid_ep *rx = to->rx[j];

	fill(len, i * 16 + j + (int)len);
	for (int step = 0; step < 2; step++) {
		if ((step == 0) == expected) {
			if (tagged)
				OK(fi_trecv(rx, in, len, NULL, FI_ADDR_UNSPEC, 7,
					    0, &rx_context[j]));
			else
				OK(fi_recv(rx, in, len, NULL, FI_ADDR_UNSPEC,
					   &rx_context[j]));
		} else if (tagged) {
			TRY(fi_tsend(from->tx[i], out, len, NULL, addr, 7,
				     &tx_context[i]));
		} else {
			TRY(fi_send(from->tx[i], out, len, NULL, addr,
				    &tx_context[i]));
		}
	}
	got = done(&to->rxq[j], &rx_context[j]);
	REQUIRE(got.len == len && got.src == source);
	done(&from->txq[i], &tx_context[i]);
	REQUIRE(!memcmp(out, in, len));
}

static void all_pairs_of_contexts(void)
{
	static const size_t sizes[] = { 8, 5000, MOST };
	struct ct_side a, b;
	fi_addr_t to, back;

	open_scalable(&a, FI_MSG | FI_TAGGED | FI_SOURCE);
	open_scalable(&b, FI_MSG | FI_TAGGED | FI_SOURCE);
	to = ct_side_insert(&a, b.name);
	back = ct_side_insert(&b, a.name);
	for (int i = 0; i < CONTEXTS; i++)
		for (int j = 0; j < CONTEXTS; j++)
			for (int s = 0; s < 3; s++)
				for (int k = 0; k < 4; k++) {
					message(&a, i, &b, j,
						fi_rx_addr(to, j, BITS), back,
						sizes[s], k & 1, k & 2);
					message(&b, j, &a, i,
						fi_rx_addr(back, i, BITS), to,
						sizes[s], k & 1, k & 2);
				}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

static void contexts_of_one_endpoint(void)
{
	struct ct_side a;
	fi_addr_t itself;

	open_scalable(&a, FI_MSG | FI_TAGGED | FI_SOURCE);
	itself = ct_side_insert(&a, a.name);
	for (int i = 0; i < CONTEXTS; i++)
		for (int j = 0; j < CONTEXTS; j++)
			message(&a, i, &a, j, fi_rx_addr(itself, j, BITS), itself,
				8, j & 1, i & 1);
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
}

/* A receive that names a peer takes messages of all its contexts, and of nobody else. */
static void directed_receives(void)
{
	const uint64_t caps = FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
	struct ct_side a, b, c;
	fi_addr_t to_b, at_a, at_c;
	struct ct_completion got;
	uint64_t word[2] = { 0 };

	open_scalable(&a, caps);
	open_scalable(&b, caps);
	open_scalable(&c, caps);
	at_a = ct_side_insert(&b, a.name);
	at_c = ct_side_insert(&b, c.name);
	for (int named = 0; named < 2; named++) {
		for (int i = 0; i < CONTEXTS; i++) {
			fi_addr_t from = named ? fi_rx_addr(at_a, 1, BITS) : at_a;
			uint64_t one = 1 + i, other = 100 + i;

			to_b = ct_side_insert(&c, b.name);
			OK(fi_trecv(b.rx[2], &word[0], 8, NULL, from, 7, 0,
				    &rx_context[0]));
			OK(fi_trecv(b.rx[2], &word[1], 8, NULL, at_c, 7, 0,
				    &rx_context[1]));
			TRY(fi_tsend(c.tx[i], &other, 8, NULL,
				     fi_rx_addr(to_b, 2, BITS), 7, &tx_context[0]));
			got = done(&b.rxq[2], &rx_context[1]);
			REQUIRE(got.src == at_c && word[1] == other);
			done(&c.txq[i], &tx_context[0]);
			to_b = ct_side_insert(&a, b.name);
			TRY(fi_tsend(a.tx[i], &one, 8, NULL,
				     fi_rx_addr(to_b, 2, BITS), 7, &tx_context[0]));
			got = done(&b.rxq[2], &rx_context[0]);
			REQUIRE(got.src == at_a && word[0] == one);
			done(&a.txq[i], &tx_context[0]);
		}
	}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
	ct_close_side(&c);
}

enum { WRONG = 3 };

/* Messages to what is not there, which nobody may get: each ends with an error of the call, or of
 * its completion. */
static void end_with_errors(struct ct_side *from, const fi_addr_t wrong[WRONG])
{
	double until = ct_now() + ct_patience();
	bool is_posted[WRONG];
	ssize_t ret;

	for (int i = 0; i < WRONG; i++) {
		while ((ret = fi_tsend(from->tx[i], out, 8, NULL, wrong[i], 7,
				       &tx_context[i])) == -FI_EAGAIN) {
			REQUIRE(ct_now() < until);
			ct_drive();
		}
		is_posted[i] = !ret;
	}
	for (int i = 0; i < WRONG; i++)
		REQUIRE(!is_posted[i] || ct_next_of(&from->txq[i]).err);
}

static void context_that_is_not_there(void)
{
	struct ct_side a, b;
	fi_addr_t to;
	uint64_t word;

	open_scalable(&a, FI_TAGGED | FI_SOURCE);
	open_scalable(&b, FI_TAGGED | FI_SOURCE);
	to = ct_side_insert(&a, b.name);
	for (int j = 0; j < CONTEXTS; j++)
		OK(fi_trecv(b.rx[j], &word, 8, NULL, FI_ADDR_UNSPEC, 7, 0,
			    &rx_context[j]));
	end_with_errors(&a, (fi_addr_t[WRONG]) {
		fi_rx_addr(to, CONTEXTS, BITS), fi_rx_addr(to, 15, BITS),
		/* The number of an address that is not in the vector. */
		fi_rx_addr(to + 1, 1, BITS),
	});
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

static void with_a_plain_endpoint(void)
{
	struct ct_side a, plain;
	fi_addr_t to_plain, to_a;
	uint64_t word;

	open_scalable(&a, FI_TAGGED | FI_SOURCE | FI_MSG);
	open_plain(&plain, FI_TAGGED | FI_SOURCE | FI_MSG);
	to_plain = ct_side_insert(&a, plain.name);
	to_a = ct_side_insert(&plain, a.name);
	for (int round = 0; round < 3; round++) {
		for (int i = CONTEXTS; i--;) {
			message(&a, i, &plain, 0, to_plain, to_a, 8, true, true);
			message(&a, i, &plain, 0, to_plain, to_a, MOST, false, true);
			/* Its answer goes to the first context, whichever has sent. */
			message(&plain, 0, &a, 0, to_a, to_plain, 8, true, true);
			/* And it reaches the others by their index. */
			message(&plain, 0, &a, i, fi_rx_addr(to_a, i, BITS),
				to_plain, 8, false, true);
		}
	}
	OK(fi_trecv(plain.rx[0], &word, 8, NULL, FI_ADDR_UNSPEC, 7, 0, &rx_context[0]));
	end_with_errors(&a, (fi_addr_t[WRONG]) {
		fi_rx_addr(to_plain, 1, BITS), fi_rx_addr(to_plain, 2, BITS),
		fi_rx_addr(to_plain, 1, BITS),
	});
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&plain);
	ct_close_side(&a);
}

/* What peers do to the memory of the domain is the same whichever context they name. */
static void remote_access(void)
{
	struct ct_side a, b;
	struct fid_mr *mr;
	fi_addr_t to;
	uint64_t key, base;

	open_scalable(&a, FI_RMA | FI_MSG);
	open_scalable(&b, FI_RMA | FI_MSG);
	to = ct_side_insert(&a, b.name);
	OK(fi_mr_reg(b.domain, in, MOST, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 3, 0,
		     &mr, NULL));
	key = fi_mr_key(mr);
	base = b.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)in : 0;
	for (int i = 0; i < CONTEXTS; i++) {
		fill(MOST, i);
		TRY(fi_write(a.tx[i], out, MOST, NULL,
			     fi_rx_addr(to, CONTEXTS - 1 - i, BITS), base, key,
			     &tx_context[i]));
		done(&a.txq[i], &tx_context[i]);
		memset(out, 0, MOST);
		TRY(fi_read(a.tx[i], out, MOST, NULL, fi_rx_addr(to, i, BITS), base,
			    key, &tx_context[i]));
		done(&a.txq[i], &tx_context[i]);
		REQUIRE(!memcmp(out, in, MOST) && out[2] == (unsigned char)(62 + i));
	}
	OK(fi_close(&mr->fid));
	ct_close_side(&a);
	ct_close_side(&b);
}

/* A counter of a receive context counts what peers write through it. */
static void remote_events(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	double until = ct_now() + ct_patience();
	struct fid_cntr *written;
	struct ct_side a, b;
	struct fid_mr *mr;
	uint64_t base;
	fi_addr_t to;

	open_scalable(&a, FI_RMA | FI_RMA_EVENT | FI_MSG);
	open_scalable(&b, FI_RMA | FI_RMA_EVENT | FI_MSG);
	to = ct_side_insert(&a, b.name);
	OK(fi_close(&b.rx[1]->fid));
	OK(fi_cntr_open(b.domain, &attr, &written, NULL));
	OK(fi_rx_context(b.sep, 1, NULL, &b.rx[1], NULL));
	OK(fi_ep_bind(b.rx[1], &b.rxq[1].fid->fid, FI_RECV));
	OK(fi_ep_bind(b.rx[1], &written->fid, FI_REMOTE_WRITE));
	OK(fi_enable(b.rx[1]));
	OK(fi_mr_reg(b.domain, in, MOST, FI_REMOTE_WRITE, 0, 3, 0, &mr, NULL));
	base = b.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)in : 0;
	for (uint64_t i = 0; i < 3; i++) {
		TRY(fi_write(a.tx[i], out, 8, NULL, fi_rx_addr(to, 1, BITS), base,
			     fi_mr_key(mr), &tx_context[i]));
		done(&a.txq[i], &tx_context[i]);
		while (fi_cntr_read(written) != i + 1) {
			REQUIRE(ct_now() < until);
			ct_drive();
		}
	}
	REQUIRE(ct_all_stay_empty());
	OK(fi_close(&mr->fid));
	OK(fi_close(&b.rx[1]->fid));
	OK(fi_close(&written->fid));
	ct_open_rx(&b, 1);
	ct_close_side(&a);
	ct_close_side(&b);
}

static void counters_and_selective_completion(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *sent, *received;
	struct ct_side a, b;
	double until = ct_now() + ct_patience();
	fi_addr_t to;
	uint64_t word;

	open_scalable(&a, FI_MSG);
	open_scalable(&b, FI_MSG);
	to = ct_side_insert(&a, b.name);
	OK(fi_close(&a.tx[1]->fid));
	OK(fi_close(&b.rx[1]->fid));
	OK(fi_cntr_open(a.domain, &attr, &sent, NULL));
	OK(fi_cntr_open(b.domain, &attr, &received, NULL));
	OK(fi_tx_context(a.sep, 1, NULL, &a.tx[1], NULL));
	OK(fi_ep_bind(a.tx[1], &a.txq[1].fid->fid,
		      FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
	OK(fi_ep_bind(a.tx[1], &sent->fid, FI_SEND));
	OK(fi_enable(a.tx[1]));
	OK(fi_rx_context(b.sep, 1, NULL, &b.rx[1], NULL));
	OK(fi_ep_bind(b.rx[1], &b.rxq[1].fid->fid,
		      FI_RECV | FI_SELECTIVE_COMPLETION));
	OK(fi_ep_bind(b.rx[1], &received->fid, FI_RECV));
	OK(fi_enable(b.rx[1]));
	OK(fi_recv(b.rx[1], &word, 8, NULL, FI_ADDR_UNSPEC, NULL));
	TRY(fi_send(a.tx[1], out, 8, NULL, fi_rx_addr(to, 1, BITS), NULL));
	while (fi_cntr_read(sent) < 1 || fi_cntr_read(received) < 1) {
		REQUIRE(ct_now() < until);
		ct_drive();
	}
	REQUIRE(ct_all_stay_empty());
	OK(fi_close(&a.tx[1]->fid));
	OK(fi_close(&b.rx[1]->fid));
	OK(fi_close(&sent->fid));
	OK(fi_close(&received->fid));
	ct_open_tx(&a, 1);
	ct_open_rx(&b, 1);
	ct_close_side(&a);
	ct_close_side(&b);
}

/* Opened twice, beyond the end, with attributes, before there is a vector. */
static void rules(void)
{
	struct fi_tx_attr tx = { 0 };
	struct fi_rx_attr rx = { 0 };
	struct fid_ep *context, *alias = NULL;
	unsigned char name[CT_NAME];
	struct ct_side a;
	size_t length;

	open_objects(&a, FI_MSG);
	OK(fi_scalable_ep(a.domain, a.info, &a.sep, NULL));
	REQUIRE(a.sep->fid.fclass == FI_CLASS_SEP);
	EXPECT(fi_tx_context(a.sep, CONTEXTS, NULL, &context, NULL), -FI_EINVAL);
	EXPECT(fi_rx_context(a.sep, CONTEXTS, NULL, &context, NULL), -FI_EINVAL);
	EXPECT(fi_tx_context(a.sep, -1, NULL, &context, NULL), -FI_EINVAL);
	OK(fi_tx_context(a.sep, 0, NULL, &a.tx[0], &a));
	REQUIRE(a.tx[0]->fid.fclass == FI_CLASS_TX_CTX && a.tx[0]->fid.context == &a);
	EXPECT(fi_tx_context(a.sep, 0, NULL, &context, NULL), -FI_EBUSY);
	OK(fi_rx_context(a.sep, 0, NULL, &a.rx[0], NULL));
	REQUIRE(a.rx[0]->fid.fclass == FI_CLASS_RX_CTX);
	EXPECT(fi_enable(a.tx[0]), ct_needs_queues() ? -FI_ENOCQ : -FI_ENOAV);
	OK(fi_ep_bind(a.tx[0], &a.txq[0].fid->fid, FI_TRANSMIT));
	EXPECT(fi_enable(a.tx[0]), -FI_ENOAV);
	EXPECT(fi_ep_bind(a.tx[0], &a.av->fid, 0), -FI_EINVAL);
	EXPECT(fi_send(a.tx[0], out, 8, NULL, 0, NULL), -FI_EOPBADSTATE);
	OK(fi_scalable_ep_bind(a.sep, &a.av->fid, 0));
	EXPECT(fi_scalable_ep_bind(a.sep, &a.av->fid, 0), -FI_EINVAL);
	EXPECT(fi_scalable_ep_bind(a.sep, &a.domain->fid, 0), -FI_EINVAL);
	OK(fi_enable(a.tx[0]));
	EXPECT(fi_enable(a.rx[0]), ct_needs_queues() ? -FI_ENOCQ : 0);
	OK(fi_ep_bind(a.rx[0], &a.rxq[0].fid->fid, FI_RECV));
	OK(fi_enable(a.rx[0]));

	/* Each has the calls of its direction. */
	EXPECT(fi_recv(a.tx[0], in, 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
	EXPECT(fi_send(a.rx[0], out, 8, NULL, 0, NULL), -FI_ENOSYS);
	EXPECT(fi_write(a.rx[0], out, 8, NULL, 0, 0, 0, NULL), -FI_ENOSYS);
	EXPECT(fi_send(a.sep, out, 8, NULL, 0, NULL), -FI_ENOSYS);
	REQUIRE(fi_cancel(&a.sep->fid, NULL));

	/* One address. */
	ct_name(&a.sep->fid, a.name, sizeof(a.name));
	length = sizeof(name);
	OK(fi_getname(&a.rx[0]->fid, name, &length));
	REQUIRE(!memcmp(name, a.name, length));
	length = sizeof(name);
	OK(fi_getname(&a.tx[0]->fid, name, &length));
	REQUIRE(!memcmp(name, a.name, length));

	/* Attributes of a context. */
	tx.size = a.info->tx_attr->size + 1;
	EXPECT(fi_tx_context(a.sep, 1, &tx, &context, NULL), -FI_ENODATA);
	tx.size = 0;
	tx.inject_size = 1;
	OK(fi_tx_context(a.sep, 1, &tx, &context, NULL));
	REQUIRE(tx.size == a.info->tx_attr->size && tx.inject_size == 1);
	OK(fi_close(&context->fid));
	rx.size = a.info->rx_attr->size + 1;
	EXPECT(fi_rx_context(a.sep, 1, &rx, &context, NULL), -FI_ENODATA);
	rx.size = 1;
	OK(fi_rx_context(a.sep, 1, &rx, &context, NULL));
	OK(fi_close(&context->fid));

	/* Whatever uses an object keeps it open. */
	OK(fi_ep_alias(a.tx[0], &alias, FI_TRANSMIT | FI_TRANSMIT_COMPLETE));
	REQUIRE(alias->fid.fclass == FI_CLASS_TX_CTX);
	EXPECT(fi_close(&a.tx[0]->fid), -FI_EBUSY);
	OK(fi_close(&alias->fid));
	OK(fi_ep_alias(a.sep, &alias, FI_TRANSMIT | FI_TRANSMIT_COMPLETE));
	REQUIRE(alias->fid.fclass == FI_CLASS_SEP);
	OK(fi_rx_context(alias, 2, NULL, &context, NULL));
	EXPECT(fi_rx_context(a.sep, 2, NULL, &a.rx[2], NULL), -FI_EBUSY);
	EXPECT(fi_close(&alias->fid), -FI_EBUSY);
	OK(fi_close(&context->fid));
	OK(fi_close(&alias->fid));
	EXPECT(fi_close(&a.txq[0].fid->fid), -FI_EBUSY);
	EXPECT(fi_close(&a.sep->fid), -FI_EBUSY);
	OK(fi_close(&a.tx[0]->fid));
	EXPECT(fi_close(&a.sep->fid), -FI_EBUSY);
	OK(fi_close(&a.rx[0]->fid));
	EXPECT(fi_close(&a.av->fid), -FI_EBUSY);
	OK(fi_close(&a.sep->fid));
	ct_close_objects(&a);
}

/* Operations that are under way end without a word, and what is left goes on. */
static void closing_in_any_order(void)
{
	struct ct_side a, b;
	fi_addr_t to, back;

	for (int order = 0; order < 4; order++) {
		open_scalable(&a, FI_MSG | FI_TAGGED | FI_SOURCE);
		open_scalable(&b, FI_MSG | FI_TAGGED | FI_SOURCE);
		to = ct_side_insert(&a, b.name);
		back = ct_side_insert(&b, a.name);
		message(&a, 1, &b, 1, fi_rx_addr(to, 1, BITS), back, 8, true, true);
		/* Nobody receives this one, and nobody sends what these are for. */
		if (order & 1)
			TRY(fi_tsend(a.tx[1], out, MOST, NULL,
				     fi_rx_addr(to, 1, BITS), 99, NULL));
		OK(fi_trecv(a.rx[1], in, 8, NULL, FI_ADDR_UNSPEC, 98, 0, NULL));
		OK(fi_recv(a.rx[1], in, 8, NULL, FI_ADDR_UNSPEC, NULL));
		for (int i = 0; i < 20; i++)
			ct_drive();
		if (order & 2) {
			OK(fi_close(&a.rx[1]->fid));
			message(&a, 1, &b, 0, to, back, 8, true, false);
			ct_cq_leave(&a.rxq[1]);
			ct_cq_join(&a.rxq[1], a.domain);
			ct_open_rx(&a, 1);
		} else {
			OK(fi_close(&a.tx[1]->fid));
			message(&b, 0, &a, 0, back, to, 8, true, false);
			ct_cq_leave(&a.txq[1]);
			ct_cq_join(&a.txq[1], a.domain);
			ct_open_tx(&a, 1);
		}
		message(&a, 0, &b, 1, fi_rx_addr(to, 1, BITS), back, 8, true, true);
		ct_close_side(order & 2 ? &b : &a);
		ct_close_side(order & 2 ? &a : &b);
	}
}

enum { ROUNDS = 2000 };

struct worker {
	struct ct_side *from, *to;
	int index;
	fi_addr_t addr;
	int received;
};

/* One thread for a context of each direction at both ends. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	struct fid_ep *tx = worker->from->tx[worker->index];
	struct fid_ep *rx = worker->to->rx[worker->index];
	struct fid_cq *txq = worker->from->txq[worker->index].fid;
	struct fid_cq *rxq = worker->to->rxq[worker->index].fid;
	struct fi_cq_tagged_entry entry;
	uint64_t word;
	int rounds = ct_times(ROUNDS);

	for (int i = 0; i < rounds; i++) {
		uint64_t value = (uint64_t)worker->index << 32 | i;
		bool is_sent = false, has_come = false;

		if (fi_trecv(rx, &word, 8, NULL, FI_ADDR_UNSPEC, 7, 0, NULL))
			return NULL;
		while (fi_tsend(tx, &value, 8, NULL, worker->addr, 7, NULL)) {
			fi_cq_read(txq, &entry, 0);
			fi_cq_read(rxq, &entry, 0);
		}
		while (!is_sent || !has_come) {
			is_sent |= fi_cq_read(txq, &entry, 1) == 1;
			has_come |= fi_cq_read(rxq, &entry, 1) == 1;
		}
		worker->received += word == value;
	}
	return NULL;
}

/* The contexts of an index have a thread each, if the messages go both ways. */
static void work_in_threads(int ways)
{
	struct worker workers[2 * CONTEXTS];
	pthread_t threads[2 * CONTEXTS];
	struct ct_side a, b;
	fi_addr_t to, back;

	open_scalable(&a, FI_TAGGED);
	open_scalable(&b, FI_TAGGED);
	to = ct_side_insert(&a, b.name);
	back = ct_side_insert(&b, a.name);
	for (int i = 0; i < ways * CONTEXTS; i++) {
		bool returns = i >= CONTEXTS;

		workers[i] = (struct worker) {
			.from = returns ? &b : &a, .to = returns ? &a : &b,
			.index = i % CONTEXTS,
			.addr = fi_rx_addr(returns ? back : to, i % CONTEXTS, BITS),
		};
		REQUIRE(!pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	for (int i = 0; i < ways * CONTEXTS; i++) {
		REQUIRE(!pthread_join(threads[i], NULL));
		REQUIRE(workers[i].received == ct_times(ROUNDS));
	}
	ct_close_side(&a);
	ct_close_side(&b);
}

static void threads_with_contexts_of_their_own(void)
{
	work_in_threads(1);
}

/* Each completion queue has one thread, as they have promised. */
static void threads_with_a_promise(void)
{
	threading = FI_THREAD_COMPLETION;
	for (int i = 0; i < 2; i++) {
		is_plain_domain = i;
		work_in_threads(1);
		work_in_threads(2);
	}
}

/* A receive context that is only accessed has nothing to report. */
static void accessed_only(void)
{
	struct ct_side a;

	open_objects(&a, FI_RMA);
	OK(fi_scalable_ep(a.domain, a.info, &a.sep, NULL));
	OK(fi_scalable_ep_bind(a.sep, &a.av->fid, 0));
	for (int i = 0; i < CONTEXTS; i++) {
		ct_open_tx(&a, i);
		OK(fi_rx_context(a.sep, i, NULL, &a.rx[i], NULL));
		OK(fi_enable(a.rx[i]));
	}
	ct_close_side(&a);
}

/* Takes an operation back. Its end is in the queue, and nothing else. */
static void take_back(struct fid_ep *context, struct ct_cq *queue, void *operation)
{
	struct ct_completion end;

	OK(fi_cancel(&context->fid, operation));
	end = ct_next_of(queue);
	REQUIRE(end.err == FI_ECANCELED && end.context == operation);
}

/* Receives of each context beyond any announced size are accepted without a look at its queue. A
 * message finds the last one, and fi_cancel(3) the others. */
static void many_posted(void)
{
	enum { MANY = 100000, TAKEN = 1000 };
	struct fi_context2 *contexts = calloc(MANY, sizeof(*contexts));
	struct ct_side a, b;
	fi_addr_t to;

	REQUIRE(contexts);
	open_scalable(&a, FI_TAGGED);
	open_scalable(&b, FI_TAGGED);
	to = ct_side_insert(&a, b.name);
	for (int j = 0; j < CONTEXTS; j++) {
		for (int i = 0; i < MANY; i++)
			OK(fi_trecv(b.rx[j], in, 8, NULL, FI_ADDR_UNSPEC, i, 0,
				    &contexts[i]));
		TRY(fi_tsend(a.tx[j], out, 8, NULL, fi_rx_addr(to, j, BITS), MANY - 1,
			     &tx_context[j]));
		done(&b.rxq[j], &contexts[MANY - 1]);
		done(&a.txq[j], &tx_context[j]);
		for (int i = 0; i < TAKEN; i++)
			take_back(b.rx[j], &b.rxq[j], &contexts[i * (MANY / TAKEN)]);
	}
	ct_close_side(&a);
	ct_close_side(&b);
	free(contexts);
}

/* Sends to an endpoint that is gone wait for a connection, and are taken back by their context
 * alone. */
static void taken_back(void)
{
	struct ct_side a, gone;
	fi_addr_t to;

	setenv("FI_TCP_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_SHM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXD_TIMEOUT", "3600000", 1);
	open_scalable(&a, FI_TAGGED);
	open_scalable(&gone, FI_TAGGED);
	to = ct_side_insert(&a, gone.name);
	ct_close_side(&gone);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CONTEXTS; i++)
			TRY(fi_tsend(a.tx[i], out, 8, NULL, fi_rx_addr(to, i, BITS), 7,
				     &tx_context[i]));
		for (int i = CONTEXTS; i--;) {
			/* Another context does not have it. */
			fi_cancel(&a.tx[(i + 1) % CONTEXTS]->fid, &tx_context[i]);
			take_back(a.tx[i], &a.txq[i], &tx_context[i]);
		}
	}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
}

static const struct ct_test tests[] = {
	{ "accessed-only", accessed_only, CT_RDM },
	{ "many-posted", many_posted, CT_RDM | CT_SLOW },
	{ "taken-back", taken_back, CT_RDM | CT_SLOW },
	{ "all-pairs", all_pairs_of_contexts, CT_RDM },
	{ "itself", contexts_of_one_endpoint, CT_RDM },
	{ "directed", directed_receives, CT_RDM },
	{ "absent-context", context_that_is_not_there, CT_RDM },
	{ "plain-endpoint", with_a_plain_endpoint, CT_RDM },
	{ "remote-access", remote_access, CT_RDM },
	{ "remote-events", remote_events, CT_RDM },
	{ "counters", counters_and_selective_completion, CT_RDM },
	{ "rules", rules, CT_RDM },
	{ "closing", closing_in_any_order, CT_RDM },
	{ "threads", threads_with_contexts_of_their_own, CT_RDM },
	{ "threads-promise", threads_with_a_promise, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
