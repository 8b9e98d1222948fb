/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* What scalable endpoints alone have: contexts of each direction behind one address, which peers
 * name by fi_rx_addr(3). */
#include "form.h"

#include <pthread.h>

#include "pattern.h"
#include "wait.h"

enum { CONTEXTS = CT_CONTEXTS, BITS = CT_CONTEXT_BITS };

static enum fi_threading threading;
/* The attributes of the domain say nothing of several contexts. */
static bool is_plain_domain;

static void as_a_plain_one(struct fi_info *info)
{
	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
	info->caps &= ~FI_RMA_EVENT;
}

static struct ct_setup scalable(uint64_t caps)
{
	return (struct ct_setup) {
		.kind = CT_SCALABLE, .spec = {
			.caps = caps, .threading = threading,
			.open = is_plain_domain ? as_a_plain_one : NULL,
		},
	};
}

static void open_scalable(struct ct_side *side, uint64_t caps)
{
	struct ct_setup setup = scalable(caps);

	ct_open_ready(side, &setup);
}

static void open_both(struct ct_side *a, struct ct_side *b, uint64_t caps)
{
	open_scalable(a, caps);
	open_scalable(b, caps);
}

static void close_both(struct ct_side *a, struct ct_side *b)
{
	ct_close_side(a);
	ct_close_side(b);
}

enum { WRONG = 3 };

/* Messages to what is not there, which nobody may get: each ends with an error of the call, or of
 * its completion. */
static void end_with_errors(struct ct_side *from, const fi_addr_t wrong[WRONG])
{
	bool is_posted[WRONG];
	ssize_t ret;

	for (int i = 0; i < WRONG; i++) {
		CT_UNTIL((ret = fi_tsend(from->tx[i], from->out.data, 8, from->out.desc, wrong[i],
					 TAG, &ct_sent[i])) != -FI_EAGAIN, ct_drive());
		is_posted[i] = !ret;
	}
	for (int i = 0; i < WRONG; i++)
		REQUIRE(!is_posted[i] || ct_next_of(from->txq[i]).err);
}

static void context_that_is_not_there(void)
{
	struct ct_side a, b;
	fi_addr_t to;

	open_both(&a, &b, FI_TAGGED | FI_SOURCE);
	to = ct_side_insert(&a, b.name[0]);
	for (int j = 0; j < CONTEXTS; j++)
		ct_side_receive(&b, j, j, 8, FI_ADDR_UNSPEC, TAG);
	end_with_errors(&a, (fi_addr_t[WRONG]) {
		fi_rx_addr(to, CONTEXTS, BITS), fi_rx_addr(to, 15, BITS),
		/* The number of an address that is not in the vector. */
		fi_rx_addr(to + 1, 1, BITS),
	});
	REQUIRE(ct_all_stay_empty());
	close_both(&a, &b);
}

static void with_a_plain_endpoint(void)
{
	const uint64_t caps = FI_TAGGED | FI_SOURCE | FI_MSG;
	struct ct_side a, plain;
	fi_addr_t to_plain, to_a;

	open_scalable(&a, caps);
	ct_open_ready(&plain, &(struct ct_setup) {
		.count = 1, .spec = { .caps = caps, .rx_ctx_bits = BITS },
	});
	to_plain = ct_address(&a, &plain, 0);
	to_a = ct_source(&plain, &a, 0);
	for (int round = 0; round < 3; round++) {
		for (int i = CONTEXTS; i--;) {
			pass(&a, i, &plain, 0, 8, true, TAG);
			pass(&a, i, &plain, 0, CT_PLACE, false, TAG);
			/* Its answer goes to the first context, whichever has sent. */
			ct_side_receive(&a, 0, 1, 8, FI_ADDR_UNSPEC, TAG);
			ct_side_send(&plain, 0, to_a, 1, 8, TAG);
			REQUIRE(ct_side_done(&a, 0, 1, 8, 1).src == to_plain);
			ct_side_sent(&plain, 0, 1);
			/* And it reaches the others by their index. */
			pass(&plain, 0, &a, i, 8, false, TAG);
		}
	}
	ct_side_receive(&plain, 0, 0, 8, FI_ADDR_UNSPEC, TAG);
	end_with_errors(&a, (fi_addr_t[WRONG]) {
		fi_rx_addr(to_plain, 1, BITS), fi_rx_addr(to_plain, 2, BITS),
		fi_rx_addr(to_plain, 1, BITS),
	});
	REQUIRE(ct_all_stay_empty());
	close_both(&plain, &a);
}

/* What peers do to the memory of the domain is the same whichever context they name. */
static void remote_access(void)
{
	struct ct_memory local, remote;
	struct ct_side a, b;

	open_both(&a, &b, FI_RMA | FI_MSG);
	ct_memory_open(&a.peer, &local, CT_PLACE, FI_READ | FI_WRITE);
	ct_memory_open(&b.peer, &remote, CT_PLACE, FI_REMOTE_WRITE | FI_REMOTE_READ);
	for (int i = 0; i < CONTEXTS; i++) {
		ct_fill(local.data, CT_PLACE, (unsigned)i);
		TRY(fi_write(a.tx[i], local.data, CT_PLACE, local.desc,
			     ct_address(&a, &b, CONTEXTS - 1 - i), remote.addr, remote.key,
			     &ct_sent[i]));
		ct_side_sent(&a, i, i);
		memset(local.data, 0, CT_PLACE);
		/* Another context's read has no order with it. */
		CT_UNTIL(ct_holds(remote.data, CT_PLACE, (unsigned)i), ct_drive());
		TRY(fi_read(a.tx[i], local.data, CT_PLACE, local.desc, ct_address(&a, &b, i),
			    remote.addr, remote.key, &ct_sent[i]));
		ct_side_sent(&a, i, i);
		REQUIRE(ct_holds(local.data, CT_PLACE, (unsigned)i));
		REQUIRE(ct_holds(remote.data, CT_PLACE, (unsigned)i));
	}
	ct_memory_close(&local);
	ct_memory_close(&remote);
	close_both(&a, &b);
}

/* Context 1 once more, with a counter beside its queue. */
static struct fid_cntr *count_at(struct ct_side *side, struct fid_ep **context, struct ct_cq *queue,
				 uint64_t of_queue, uint64_t counted)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	bool sends = of_queue & FI_TRANSMIT;
	struct fid_cntr *counter;

	OK(fi_close(&(*context)->fid));
	OK(fi_cntr_open(side->peer.domain, &attr, &counter, NULL));
	OK(sends ? fi_tx_context(side->sep, 1, NULL, context, NULL)
		 : fi_rx_context(side->sep, 1, NULL, context, NULL));
	OK(fi_ep_bind(*context, &queue->fid->fid, of_queue));
	OK(fi_ep_bind(*context, &counter->fid, counted));
	OK(fi_enable(*context));
	return counter;
}

static void uncount(struct fid_ep **context, struct fid_cntr *counter)
{
	OK(fi_close(&(*context)->fid));
	OK(fi_close(&counter->fid));
	*context = NULL;
}

/* A counter of a receive context counts what peers write through it. */
static void remote_events(void)
{
	struct fid_cntr *written;
	struct ct_memory remote;
	struct ct_side a, b;

	open_both(&a, &b, FI_RMA | FI_RMA_EVENT | FI_MSG);
	written = count_at(&b, &b.rx[1], b.rxq[1], FI_RECV, FI_REMOTE_WRITE);
	ct_memory_open(&b.peer, &remote, CT_PLACE, FI_REMOTE_WRITE);
	for (uint64_t i = 0; i < 3; i++) {
		TRY(fi_write(a.tx[i], a.out.data, 8, a.out.desc, ct_address(&a, &b, 1), remote.addr,
			     remote.key, &ct_sent[i]));
		ct_side_sent(&a, (int)i, (int)i);
		CT_UNTIL(fi_cntr_read(written) == i + 1, ct_drive());
	}
	REQUIRE(ct_all_stay_empty());
	ct_memory_close(&remote);
	uncount(&b.rx[1], written);
	OK(ct_open_rx(&b, 1));
	close_both(&a, &b);
}

static void counters_and_selective_completion(void)
{
	struct fid_cntr *sent, *received;
	struct ct_side a, b;

	open_both(&a, &b, FI_MSG);
	sent = count_at(&a, &a.tx[1], a.txq[1], FI_TRANSMIT | FI_SELECTIVE_COMPLETION, FI_SEND);
	received = count_at(&b, &b.rx[1], b.rxq[1], FI_RECV | FI_SELECTIVE_COMPLETION, FI_RECV);
	ct_side_receive(&b, 1, 0, 8, FI_ADDR_UNSPEC, CT_UNTAGGED);
	ct_side_send(&a, 1, ct_address(&a, &b, 1), 0, 8, CT_UNTAGGED);
	CT_UNTIL(fi_cntr_read(sent) >= 1 && fi_cntr_read(received) >= 1, ct_drive());
	REQUIRE(ct_all_stay_empty());
	uncount(&a.tx[1], sent);
	uncount(&b.rx[1], received);
	OK(ct_open_tx(&a, 1));
	OK(ct_open_rx(&b, 1));
	close_both(&a, &b);
}

/* Opened twice, beyond the end, with attributes, before there is a vector. */
static void rules(void)
{
	struct ct_setup setup = scalable(FI_MSG);
	struct fi_tx_attr tx = { 0 };
	struct fi_rx_attr rx = { 0 };
	struct fid_ep *context, *alias = NULL;
	unsigned char name[CT_NAME], own[CT_NAME];
	struct ct_side a;
	size_t length;

	OK(ct_open_side(&a, &setup));
	OK(fi_scalable_ep(a.peer.domain, a.peer.info, &a.sep, NULL));
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
	OK(fi_ep_bind(a.tx[0], &a.txq[0]->fid->fid, FI_TRANSMIT));
	EXPECT(fi_enable(a.tx[0]), -FI_ENOAV);
	EXPECT(fi_ep_bind(a.tx[0], &a.peer.av->fid, 0), -FI_EINVAL);
	EXPECT(fi_send(a.tx[0], own, 8, NULL, 0, NULL), -FI_EOPBADSTATE);
	OK(fi_scalable_ep_bind(a.sep, &a.peer.av->fid, 0));
	EXPECT(fi_scalable_ep_bind(a.sep, &a.peer.av->fid, 0), -FI_EINVAL);
	EXPECT(fi_scalable_ep_bind(a.sep, &a.peer.domain->fid, 0), -FI_EINVAL);
	OK(fi_enable(a.tx[0]));
	EXPECT(fi_enable(a.rx[0]), ct_needs_queues() ? -FI_ENOCQ : 0);
	OK(fi_ep_bind(a.rx[0], &a.rxq[0]->fid->fid, FI_RECV));
	OK(fi_enable(a.rx[0]));

	/* Each has the calls of its direction. */
	EXPECT(fi_recv(a.tx[0], own, 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
	EXPECT(fi_send(a.rx[0], own, 8, NULL, 0, NULL), -FI_ENOSYS);
	EXPECT(fi_write(a.rx[0], own, 8, NULL, 0, 0, 0, NULL), -FI_ENOSYS);
	EXPECT(fi_send(a.sep, own, 8, NULL, 0, NULL), -FI_ENOSYS);
	REQUIRE(fi_cancel(&a.sep->fid, NULL));

	/* One address. */
	ct_name(&a.sep->fid, own, sizeof(own));
	for (int i = 0; i < 2; i++) {
		length = sizeof(name);
		OK(fi_getname(i ? &a.rx[0]->fid : &a.tx[0]->fid, name, &length));
		REQUIRE(!memcmp(name, own, length));
	}

	/* Attributes of a context. */
	tx.size = a.peer.info->tx_attr->size + 1;
	EXPECT(fi_tx_context(a.sep, 1, &tx, &context, NULL), -FI_ENODATA);
	tx.size = 0;
	tx.inject_size = 1;
	OK(fi_tx_context(a.sep, 1, &tx, &context, NULL));
	REQUIRE(tx.size == a.peer.info->tx_attr->size && tx.inject_size == 1);
	OK(fi_close(&context->fid));
	rx.size = a.peer.info->rx_attr->size + 1;
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
	EXPECT(fi_close(&a.txq[0]->fid->fid), -FI_EBUSY);
	EXPECT(fi_close(&a.sep->fid), -FI_EBUSY);
	OK(fi_close(&a.tx[0]->fid));
	EXPECT(fi_close(&a.sep->fid), -FI_EBUSY);
	OK(fi_close(&a.rx[0]->fid));
	EXPECT(fi_close(&a.peer.av->fid), -FI_EBUSY);
	a.tx[0] = a.rx[0] = NULL;
	ct_close_side(&a);
}

/* Operations that are under way end without a word, and what is left goes on. */
static void closing_in_any_order(void)
{
	for (int order = 0; order < 4; order++) {
		bool receives = order & 2;
		struct fid_ep **context;
		struct ct_side a, b;
		struct ct_cq *queue;

		open_both(&a, &b, FI_MSG | FI_TAGGED | FI_SOURCE);
		context = receives ? &a.rx[1] : &a.tx[1];
		queue = receives ? a.rxq[1] : a.txq[1];
		pass(&a, 1, &b, 1, 8, true, TAG);
		/* Nobody receives this one, and nobody sends what these are for. */
		if (order & 1)
			TRY(fi_tsend(a.tx[1], a.out.data, CT_PLACE, a.out.desc,
				     ct_address(&a, &b, 1), 99, NULL));
		OK(fi_trecv(a.rx[1], a.in.data, 8, a.in.desc, FI_ADDR_UNSPEC, 98, 0, NULL));
		OK(fi_recv(a.rx[1], a.in.data, 8, a.in.desc, FI_ADDR_UNSPEC, NULL));
		for (int i = 0; i < 20; i++)
			ct_drive();
		OK(fi_close(&(*context)->fid));
		if (receives)
			pass(&a, 1, &b, 0, 8, true, CT_UNTAGGED);
		else
			pass(&b, 0, &a, 0, 8, true, CT_UNTAGGED);
		ct_cq_leave(queue);
		OK(ct_cq_join(queue, a.peer.domain, (struct fi_cq_attr) { 0 }));
		OK(receives ? ct_open_rx(&a, 1) : ct_open_tx(&a, 1));
		pass(&a, 0, &b, 1, 8, true, TAG);
		ct_close_side(receives ? &b : &a);
		ct_close_side(receives ? &a : &b);
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
	struct fid_cq *txq = worker->from->txq[worker->index]->fid;
	struct fid_cq *rxq = worker->to->rxq[worker->index]->fid;
	struct fi_cq_tagged_entry entry;
	uint64_t word;
	int rounds = ct_times(ROUNDS);

	for (int i = 0; i < rounds; i++) {
		uint64_t value = (uint64_t)worker->index << 32 | i;
		bool is_sent = false, has_come = false;

		if (fi_trecv(rx, &word, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, NULL))
			return NULL;
		while (fi_tsend(tx, &value, 8, NULL, worker->addr, TAG, NULL)) {
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

	open_both(&a, &b, FI_TAGGED);
	for (int i = 0; i < ways * CONTEXTS; i++) {
		struct ct_side *from = i < CONTEXTS ? &a : &b, *to = i < CONTEXTS ? &b : &a;

		workers[i] = (struct worker) {
			.from = from, .to = to, .index = i % CONTEXTS,
			.addr = ct_address(from, to, i % CONTEXTS),
		};
	}
	for (int i = 0; i < ways * CONTEXTS; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, work, &workers[i]));
	for (int i = 0; i < ways * CONTEXTS; i++) {
		REQUIRE(!pthread_join(threads[i], NULL));
		REQUIRE(workers[i].received == ct_times(ROUNDS));
	}
	close_both(&a, &b);
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
	struct ct_setup setup = scalable(FI_RMA);
	struct ct_side a;

	OK(ct_open_side(&a, &setup));
	OK(ct_open_sep(&a));
	for (int i = 0; i < CONTEXTS; i++) {
		OK(ct_open_tx(&a, i));
		OK(fi_rx_context(a.sep, i, NULL, &a.rx[i], NULL));
		OK(fi_enable(a.rx[i]));
	}
	ct_close_side(&a);
}

/* Receives of each context beyond any announced size are accepted without a look at its queue. A
 * message finds the last one, and fi_cancel(3) the others. */
static void many_posted(void)
{
	enum { MANY = 100000, TAKEN = 1000 };
	struct fi_context2 *contexts = calloc(MANY, sizeof(*contexts));
	struct ct_side a, b;

	REQUIRE(contexts);
	open_both(&a, &b, FI_TAGGED);
	for (int j = 0; j < CONTEXTS; j++) {
		for (int i = 0; i < MANY; i++)
			OK(fi_trecv(b.rx[j], b.in.data, 8, b.in.desc, FI_ADDR_UNSPEC, i, 0,
				    &contexts[i]));
		ct_side_send(&a, j, ct_address(&a, &b, j), j, 8, MANY - 1);
		ct_done_of(b.rxq[j], &contexts[MANY - 1]);
		ct_side_sent(&a, j, j);
		for (int i = 0; i < TAKEN; i++)
			take_back(b.rx[j], b.rxq[j], &contexts[i * (MANY / TAKEN)]);
	}
	close_both(&a, &b);
	free(contexts);
}

/* Sends to an endpoint that is gone wait for a connection, and are taken back by their context
 * alone. */
static void taken_back(void)
{
	struct ct_side a, gone;
	fi_addr_t to[CONTEXTS];

	setenv("FI_TCP_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_SHM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "3600000", 1);
	setenv("FI_OFI_RXD_TIMEOUT", "3600000", 1);
	open_both(&a, &gone, FI_TAGGED);
	for (int i = 0; i < CONTEXTS; i++)
		to[i] = ct_address(&a, &gone, i);
	ct_close_side(&gone);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CONTEXTS; i++)
			ct_side_send(&a, i, to[i], i, 8, TAG);
		for (int i = CONTEXTS; i--;) {
			/* Another context does not have it. */
			fi_cancel(&a.tx[(i + 1) % CONTEXTS]->fid, &ct_sent[i]);
			take_back(a.tx[i], a.txq[i], &ct_sent[i]);
		}
	}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
}

const struct ct_test scalable_tests[] = {
	{ "scalable/accessed-only", accessed_only, CT_RDM },
	{ "scalable/many-posted", many_posted, CT_RDM | CT_SLOW },
	{ "scalable/taken-back", taken_back, CT_RDM | CT_SLOW },
	{ "scalable/absent-context", context_that_is_not_there, CT_RDM },
	{ "scalable/plain-endpoint", with_a_plain_endpoint, CT_RDM },
	{ "scalable/remote-access", remote_access, CT_RDM },
	{ "scalable/remote-events", remote_events, CT_RDM },
	{ "scalable/counters", counters_and_selective_completion, CT_RDM },
	{ "scalable/rules", rules, CT_RDM },
	{ "scalable/closing", closing_in_any_order, CT_RDM },
	{ "scalable/threads", threads_with_contexts_of_their_own, CT_RDM },
	{ "scalable/threads-promise", threads_with_a_promise, CT_RDM | CT_SLOW },
};
const size_t scalable_count = sizeof(scalable_tests) / sizeof(scalable_tests[0]);
