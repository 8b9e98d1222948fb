/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Work for an instruction counter, in one thread: n times one operation
 * between RDM endpoints, both ends of it, or n reads of an empty queue. Two
 * runs with different n give the cost of one as the difference of their counts.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_atomic.h>

#include "check.h"
#include "memory.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

/* Messages of a burst. */
#define BURST 64

static struct fi_context2 tx_context, rx_context;
static struct fi_context2 tx_contexts[BURST], rx_contexts[BURST];

static struct {
	long count, peers;
	enum fi_threading threading;
} options = { .count = 1000, .peers = 1 };

/* A pair, memory of b that a may reach, and more peers of b. */
struct work {
	struct ct_pair pair;
	struct ct_memory out, in;
	struct ct_peer *others;
};

/*
 * Reads both queues until each has one completion, in whichever order they come:
 * the sender's may need the receiver's progress (rxd, whose receiver
 * acknowledges), and the other way round.
 */
static void read_one_each(struct ct_peer *from, struct ct_peer *to)
{
	struct fi_cq_tagged_entry entry;
	bool sent = false, received = false;

	while (!sent || !received) {
		if (!sent)
			sent = fi_cq_read(from->tx.fid, &entry, 1) == 1;
		if (!received)
			received = fi_cq_read(to->rx.fid, &entry, 1) == 1;
	}
}

static void pass_message(struct work *work, struct ct_peer *from)
{
	struct ct_peer *to = &work->pair.b;

	OK(fi_trecv(to->ep, work->in.data, 8, work->in.desc, FI_ADDR_UNSPEC, 1,
		    0, &rx_context));
	OK(fi_tsend(from->ep, work->out.data, 8, work->out.desc, from->to, 1,
		    &tx_context));
	read_one_each(from, to);
}

static void tagged_message(struct work *work)
{
	pass_message(work, &work->pair.a);
}

static void read_all(struct ct_peer *from, struct ct_peer *to)
{
	struct fi_cq_tagged_entry entries[BURST];
	ssize_t sent = 0, received = 0, ret;

	while (sent < BURST || received < BURST) {
		ret = fi_cq_read(from->tx.fid, entries, BURST);
		sent += ret > 0 ? ret : 0;
		ret = fi_cq_read(to->rx.fid, entries, BURST);
		received += ret > 0 ? ret : 0;
	}
}

/* Messages that follow each other, counted one by one. */
static void pass_burst(struct work *work, uint64_t flags)
{
	struct ct_peer *from = &work->pair.a, *to = &work->pair.b;
	struct iovec iov = { .iov_base = work->out.data, .iov_len = 8 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .desc = &work->out.desc, .iov_count = 1,
		.addr = from->to, .tag = 1,
	};

	for (int i = 0; i < BURST; i++)
		OK(fi_trecv(to->ep, work->in.data, 8, work->in.desc,
			    FI_ADDR_UNSPEC, 1, 0, &rx_contexts[i]));
	for (int i = 0; i < BURST; i++) {
		msg.context = &tx_contexts[i];
		OK(fi_tsendmsg(from->ep, &msg, flags | FI_COMPLETION));
	}
	read_all(from, to);
}

static void burst(struct work *work)
{
	pass_burst(work, 0);
}

static void delivered_burst(struct work *work)
{
	pass_burst(work, FI_DELIVERY_COMPLETE);
}

/* One message from each peer. */
static void gather(struct work *work)
{
	pass_message(work, &work->pair.a);
	for (long i = 0; i < options.peers - 1; i++)
		pass_message(work, &work->others[i]);
}

static void write_with_data(struct work *work)
{
	struct ct_peer *a = &work->pair.a, *b = &work->pair.b;

	OK(fi_writedata(a->ep, work->out.data, 8, work->out.desc, 1, a->to,
			work->in.addr, work->in.key, &tx_context));
	read_one_each(a, b);
}

static void fetch_atomic(struct work *work)
{
	struct ct_peer *a = &work->pair.a, *b = &work->pair.b;
	struct fi_cq_tagged_entry entry;

	OK(fi_fetch_atomic(a->ep, work->out.data, 1, work->out.desc,
			   work->out.data + 8, work->out.desc, a->to,
			   work->in.addr, work->in.key, FI_UINT64, FI_SUM,
			   &tx_context));
	do
		fi_cq_read(b->rx.fid, &entry, 1);
	while (fi_cq_read(a->tx.fid, &entry, 1) != 1);
}

static void empty_read(struct work *work)
{
	struct fi_cq_tagged_entry entry;

	EXPECT(fi_cq_read(work->pair.b.rx.fid, &entry, 1), -FI_EAGAIN);
}

static const struct kind {
	const char *name;
	void (*run)(struct work *work);
	uint64_t caps;
} kinds[] = {
	{ "tagged", tagged_message, FI_TAGGED },
	{ "write", write_with_data, FI_MSG | FI_RMA },
	{ "atomic", fetch_atomic, FI_MSG | FI_ATOMIC },
	{ "gather", gather, FI_TAGGED },
	{ "burst", burst, FI_TAGGED },
	{ "delivered", delivered_burst, FI_TAGGED },
	{ "empty", empty_read, FI_TAGGED },
};

static void open_others(struct work *work)
{
	struct ct_peer *b = &work->pair.b;

	work->others = calloc((size_t)options.peers, sizeof(*work->others));
	REQUIRE(work->others);
	for (long i = 0; i < options.peers - 1; i++) {
		struct ct_pair pair;

		b->to = ct_open_third(&work->others[i], b);
		pair = (struct ct_pair) { .a = work->others[i], .b = *b };
		pair.a.partner = &pair.b;
		pair.b.partner = &pair.a;
		ct_warm_up(&pair);
	}
}

static void run(const struct kind *kind)
{
	struct ct_spec spec = {
		.caps = kind->caps, .format = FI_CQ_FORMAT_TAGGED,
		.threading = options.threading,
	};
	static struct work work;

	ct_open_pair(&work.pair, &spec);
	ct_memory_open(&work.pair.a, &work.out, 16,
		       FI_SEND | FI_READ | FI_WRITE);
	ct_memory_open(&work.pair.b, &work.in, 16, kind->caps & FI_TAGGED ?
		       FI_RECV : FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_warm_up(&work.pair);
	open_others(&work);
	for (long i = 0; i < options.count; i++)
		kind->run(&work);
}

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [-k tagged|write|atomic|gather|burst|delivered|empty]\n"
		"       [-T safe|domain] [-n count] [-N peers] [-p provider]\n",
		program);
	exit(1);
}

int main(int argc, char **argv)
{
	const struct kind *kind = kinds;
	size_t count = sizeof(kinds) / sizeof(kinds[0]);
	int c;

	ct_opt.type = FI_EP_RDM;
	while ((c = getopt(argc, argv, "k:T:n:N:p:")) != -1) {
		switch (c) {
		case 'k':
			kind = kinds;
			while (kind < kinds + count && strcmp(kind->name, optarg))
				kind++;
			if (kind == kinds + count)
				usage(argv[0]);
			break;
		case 'T':
			options.threading = strcmp(optarg, "domain") ?
					    FI_THREAD_SAFE : FI_THREAD_DOMAIN;
			break;
		case 'n':
			options.count = atol(optarg);
			break;
		case 'N':
			options.peers = atol(optarg);
			break;
		case 'p':
			ct_opt.provider = optarg;
			break;
		default:
			usage(argv[0]);
		}
	}
	run(kind);
	return 0;
}
