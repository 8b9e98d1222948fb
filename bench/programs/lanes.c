/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many endpoints, many threads. Each thread of a side has endpoints and queues
 * of its own and sends to those of one thread of the other side, its window
 * spread over its endpoints. Passes with one thread alone and with all of them
 * alternate, so that what else the machine does falls on both; the medians are
 * printed, and how far the threads' rates add up.
 *
 * With two processors for each thread, both ends of a pair have one. With
 * fewer, they share one and let each other have it when they find nothing to
 * do: what adds up then is the processors' time. With -i one thread drives both
 * ends, of which neither ever waits for the other to run. With -c these ends are
 * a transmit and a receive context of two scalable endpoints that all threads
 * share.
 *
 * Beside the rates stand messages per second of processor time, both sides'
 * together, which vary less on a machine with other work; a thread that sleeps
 * because another one has a lock does not show in them.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "connect.h"
#include "side.h"
#include "wait.h"

#define TAG 7
#define ROUNDS 5
#define PASS_SECONDS 0.2
#define CONTEXT_BITS 8

struct slot {
	struct fi_context2 context;	/* first: completions lead back here */
	long endpoint;
};

/* One end of a lane. */
struct end {
	struct bench_side side;
	struct fid_ep **eps;
	fi_addr_t *to;			/* the other end's, one for each */
	struct slot *slots;		/* a window for each endpoint */
	char *buf;
	long *posted, *done;		/* receives of each endpoint */
	long sent, in_flight, arrived;
};

struct lane {
	struct end out, in;		/* one of them, if not inside */
	struct fi_context2 end_context;
	pthread_t thread;
	int number;
	double start, stop, cpu;	/* of the last pass, seconds */
};

static struct {
	struct bench_options options;
	bool client;
	bool yields;			/* the other end runs on this processor */
	int apart;			/* processors from one pair to the next */
	struct lane *lanes;
	/* Scalable endpoints of the sending and the receiving ends, the address vector of
	 * both, and the number of the receiving one there. */
	struct fid_ep *scalable[2];
	struct fid_av *av;
	fi_addr_t receiver;
	pthread_barrier_t barrier;
	/* Of the next pass, written between its barriers. */
	long active, each;		/* lanes; messages of each endpoint */
	bool over;
} run;

static ssize_t post_send(struct end *end, long endpoint, void *context)
{
	struct fid_ep *ep = end->eps[endpoint];
	fi_addr_t to = end->to[endpoint];
	size_t size = run.options.size;

	return run.options.kind == BENCH_TAGGED ?
	       fi_tsend(ep, end->buf, size, NULL, to, TAG, context) :
	       fi_send(ep, end->buf, size, NULL, to, context);
}

static ssize_t post_receive(struct end *end, long endpoint, void *context)
{
	struct fid_ep *ep = end->eps[endpoint];
	size_t size = run.options.size;

	return run.options.kind == BENCH_TAGGED ?
	       fi_trecv(ep, end->buf, size, NULL, FI_ADDR_UNSPEC, TAG, 0,
			context) :
	       fi_recv(ep, end->buf, size, NULL, FI_ADDR_UNSPEC, context);
}

/* Sends up to a window of messages, and handles earlier completions; returns
 * whether there was anything to do. */
static bool send_some(struct end *end)
{
	long endpoints = run.options.endpoints;
	long window = run.options.window * endpoints;
	long total = run.each * endpoints, reaped;
	bool moved = false;

	while (end->sent < total && end->in_flight < window) {
		struct slot *slot = &end->slots[end->sent % window];
		ssize_t ret = post_send(end, end->sent % endpoints, slot);

		if (ret == -FI_EAGAIN)
			break;
		OK(ret);
		end->sent++;
		end->in_flight++;
		moved = true;
	}
	reaped = bench_reap(end->side.peer.tx.fid);
	end->in_flight -= reaped;
	return moved || reaped;
}

static void keep_posted(struct end *end, long endpoint)
{
	long window = run.options.window;

	while (end->posted[endpoint] < run.each &&
	       end->posted[endpoint] - end->done[endpoint] < window) {
		struct slot *slot = &end->slots[endpoint * window +
						end->posted[endpoint] % window];
		ssize_t ret;

		slot->endpoint = endpoint;
		ret = post_receive(end, endpoint, slot);
		if (ret == -FI_EAGAIN)
			return;
		OK(ret);
		end->posted[endpoint]++;
	}
}

static bool receive_some(struct end *end)
{
	struct fi_cq_entry entries[64];
	ssize_t count = fi_cq_read(end->side.peer.rx.fid, entries, 64);

	if (count == -FI_EAGAIN)
		count = 0;
	REQUIRE(count >= 0);
	for (ssize_t i = 0; i < count; i++)
		end->done[((struct slot *)entries[i].op_context)->endpoint]++;
	for (long i = 0; i < run.options.endpoints; i++)
		keep_posted(end, i);
	end->arrived += count;
	return count;
}

static void idle(void)
{
	if (run.yields)
		sched_yield();
}

static bool all_sent(const struct end *end)
{
	return end->sent == run.each * run.options.endpoints && !end->in_flight;
}

static bool all_arrived(const struct end *end)
{
	return end->arrived == run.each * run.options.endpoints;
}

static void both_ends(struct lane *lane)
{
	while (!all_sent(&lane->out) || !all_arrived(&lane->in)) {
		send_some(&lane->out);
		receive_some(&lane->in);
	}
}

/* Sends a message back, which means that everything has arrived. */
static void sending_end(struct lane *lane)
{
	while (!all_sent(&lane->out))
		if (!send_some(&lane->out))
			idle();
	while (!bench_reap(lane->out.side.peer.rx.fid))
		idle();
}

static void receiving_end(struct lane *lane)
{
	struct ct_peer *peer = &lane->in.side.peer;
	ssize_t ret;

	while (!all_arrived(&lane->in))
		if (!receive_some(&lane->in))
			idle();
	while ((ret = post_send(&lane->in, 0, &lane->end_context)) ==
	       -FI_EAGAIN)
		fi_cq_read(peer->tx.fid, NULL, 0);
	OK(ret);
	while (!bench_reap(peer->tx.fid))
		idle();
}

static void prepare(struct lane *lane)
{
	if (run.options.inside || !run.client) {
		struct end *in = &lane->in;

		in->arrived = 0;
		for (long i = 0; i < run.options.endpoints; i++) {
			in->posted[i] = in->done[i] = 0;
			keep_posted(in, i);
		}
	}
	if (run.options.inside || run.client)
		lane->out.sent = lane->out.in_flight = 0;
	if (!run.options.inside && run.client)
		OK(post_receive(&lane->out, 0, &lane->end_context));
}

static double cpu_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void one_pass(struct lane *lane)
{
	double cpu = cpu_now();

	lane->start = ct_now();
	if (run.options.inside)
		both_ends(lane);
	else if (run.client)
		sending_end(lane);
	else
		receiving_end(lane);
	lane->stop = ct_now();
	lane->cpu = cpu_now() - cpu;
}

static void meet_at_barrier(void)
{
	int ret = pthread_barrier_wait(&run.barrier);

	REQUIRE(!ret || ret == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;

	if (run.options.pinned)
		bench_pin(lane->number * run.apart +
			  (run.apart == 2 && !run.client));
	for (;;) {
		/* The pass is known. */
		meet_at_barrier();
		if (run.over)
			return NULL;
		if (lane->number < run.active)
			prepare(lane);
		/* Both sides are prepared. */
		meet_at_barrier();
		meet_at_barrier();
		if (lane->number < run.active)
			one_pass(lane);
		meet_at_barrier();
	}
}

struct outcome {
	double rate, per_cpu;
};

/* Runs one pass of the lanes; returns the client's measurement. */
static struct outcome pass(struct bench_side *side, long active, long each)
{
	struct outcome outcome = { 0 };
	double start = 0, stop = 0, cpu = 0, other = 0;
	double messages = (double)active * (double)each *
			  (double)run.options.endpoints;

	run.active = active;
	run.each = each;
	meet_at_barrier();
	meet_at_barrier();
	if (!run.options.inside)
		bench_barrier(side);
	meet_at_barrier();
	meet_at_barrier();
	for (long i = 0; i < active; i++) {
		const struct lane *lane = &run.lanes[i];

		start = !i || lane->start < start ? lane->start : start;
		stop = lane->stop > stop ? lane->stop : stop;
		cpu += lane->cpu;
	}
	if (!run.options.inside) {
		bench_tell(side, &cpu, sizeof(cpu));
		bench_hear(side, &other, sizeof(other));
	}
	outcome.rate = messages / (stop - start);
	outcome.per_cpu = messages / (cpu + other);
	return outcome;
}

static void *room(size_t count, size_t size)
{
	void *data = calloc(count, size);

	REQUIRE(data);
	return data;
}

static void open_end(struct end *end, const struct bench_side *side,
		     const struct ct_peer *shared)
{
	size_t endpoints = (size_t)run.options.endpoints;

	end->side = *side;
	end->eps = room(endpoints, sizeof(*end->eps));
	end->to = room(endpoints, sizeof(*end->to));
	end->slots = room(endpoints * (size_t)run.options.window,
			  sizeof(*end->slots));
	end->buf = room(1, run.options.size + 1);
	end->posted = room(endpoints, sizeof(long));
	end->done = room(endpoints, sizeof(long));
	bench_open(&end->side, shared);
	if (ct_mr_mode(&end->side.peer) & FI_MR_LOCAL)
		SKIP("local buffers have to be registered");
}

/* Takes over the endpoint that the peer has just opened. */
static void keep_endpoint(struct end *end, long endpoint)
{
	struct ct_peer *peer = &end->side.peer;

	end->eps[endpoint] = peer->ep;
	end->to[endpoint] = peer->to;
	peer->ep = NULL;
}

/* Another endpoint at each end, both of this process. */
static void join_ends(struct lane *lane, long endpoint)
{
	struct ct_peer *out = &lane->out.side.peer, *in = &lane->in.side.peer;
	unsigned char name[256] = { 0 };

	if (ct_opt.type == FI_EP_MSG) {
		struct ct_pair pair = { .a = *in, .b = *out };

		pair.a.partner = &pair.b;
		pair.b.partner = &pair.a;
		ct_connect_pair(&pair);
		OK(fi_close(&pair.pep->fid));
		in->ep = pair.a.ep;
		out->ep = pair.b.ep;
	} else {
		ct_open_ep(out, out->info);
		ct_open_ep(in, in->info);
		ct_name(&in->ep->fid, name, sizeof(name));
		out->to = ct_insert(out, name);
	}
	keep_endpoint(&lane->out, endpoint);
	keep_endpoint(&lane->in, endpoint);
}

static void several(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = (size_t)run.options.threads;
	hints->ep_attr->rx_ctx_cnt = (size_t)run.options.threads;
}

/* The scalable endpoints, in the domain that all lanes share. */
static void open_scalable(struct ct_peer *peer)
{
	struct fi_av_attr attr = { .rx_ctx_bits = CONTEXT_BITS };
	unsigned char name[256] = { 0 };

	several(peer->info);
	OK(fi_av_open(peer->domain, &attr, &run.av, NULL));
	for (int i = 0; i < 2; i++) {
		OK(fi_scalable_ep(peer->domain, peer->info, &run.scalable[i], NULL));
		OK(fi_scalable_ep_bind(run.scalable[i], &run.av->fid, 0));
	}
	ct_name(&run.scalable[1]->fid, name, sizeof(name));
	EXPECT(fi_av_insert(run.av, name, 1, &run.receiver, 0, NULL), 1);
}

/* A transmit context at one end, and a receive context at the other. */
static void join_contexts(struct lane *lane)
{
	struct ct_peer *out = &lane->out.side.peer, *in = &lane->in.side.peer;

	if (!lane->number)
		open_scalable(out);
	OK(fi_tx_context(run.scalable[0], lane->number, NULL, &out->ep, NULL));
	OK(fi_ep_bind(out->ep, &out->tx.fid->fid, FI_TRANSMIT));
	OK(fi_enable(out->ep));
	OK(fi_rx_context(run.scalable[1], lane->number, NULL, &in->ep, NULL));
	OK(fi_ep_bind(in->ep, &in->rx.fid->fid, FI_RECV));
	OK(fi_enable(in->ep));
	out->to = fi_rx_addr(run.receiver, lane->number, CONTEXT_BITS);
	keep_endpoint(&lane->out, 0);
	keep_endpoint(&lane->in, 0);
}

static void close_scalable(void)
{
	for (int i = 0; i < 2; i++)
		OK(fi_close(&run.scalable[i]->fid));
	OK(fi_close(&run.av->fid));
}

static void meet_other_side(struct end *end, long endpoint)
{
	bench_meet(&end->side);
	if (end->side.pep)
		OK(fi_close(&end->side.pep->fid));
	end->side.pep = NULL;
	keep_endpoint(end, endpoint);
}

static const struct ct_peer *first_peer(void)
{
	const struct lane *first = &run.lanes[0];

	return run.options.inside || run.client ? &first->out.side.peer
						: &first->in.side.peer;
}

static void open_lane(struct lane *lane, const struct bench_side *side)
{
	const struct ct_peer *shared =
		lane->number && !run.options.own_domains ? first_peer() : NULL;

	if (run.options.inside) {
		open_end(&lane->out, side, shared);
		open_end(&lane->in, side, &lane->out.side.peer);
	} else {
		open_end(run.client ? &lane->out : &lane->in, side, shared);
	}
	for (long i = 0; i < run.options.endpoints; i++) {
		if (run.options.contexts)
			join_contexts(lane);
		else if (run.options.inside)
			join_ends(lane, i);
		else
			meet_other_side(run.client ? &lane->out : &lane->in, i);
	}
}

static void close_endpoints(struct end *end)
{
	for (long i = 0; end->eps && i < run.options.endpoints; i++)
		OK(fi_close(&end->eps[i]->fid));
}

static void close_end(struct end *end)
{
	if (!end->eps)
		return;
	ct_close_peer(&end->side.peer);
	free(end->eps);
	free(end->to);
	free(end->slots);
	free(end->buf);
	free(end->posted);
	free(end->done);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

/* Messages of each endpoint in a pass, which the client decides. */
static long enough(struct bench_side *side)
{
	long endpoints = run.options.endpoints;
	long count = run.options.iterations;
	double rate;

	/* The first pass connects; the second one is about as fast as the rest. */
	pass(side, run.options.threads, 1000 / endpoints + 1);
	rate = pass(side, run.options.threads, 1000 / endpoints + 1).rate;
	if (!count)
		count = (long)(rate * PASS_SECONDS /
			       (double)run.options.threads);
	count = count / endpoints + 1;
	if (run.options.inside)
		return count;
	if (run.client)
		bench_tell(side, &count, sizeof(count));
	else
		bench_hear(side, &count, sizeof(count));
	return count;
}

static void measure(struct bench_side *side)
{
	double alone[ROUNDS], alone_per_cpu[ROUNDS], rate[ROUNDS];
	double per_cpu[ROUNDS], least[ROUNDS], most[ROUNDS];
	long threads = run.options.threads, endpoints = run.options.endpoints;
	long each = enough(side);

	for (int i = 0; i < ROUNDS; i++) {
		struct outcome one = pass(side, 1, each);
		struct outcome all = pass(side, threads, each);

		alone[i] = one.rate;
		alone_per_cpu[i] = one.per_cpu;
		rate[i] = all.rate;
		per_cpu[i] = all.per_cpu;
		for (long j = 0; j < threads; j++) {
			const struct lane *lane = &run.lanes[j];
			double own = (double)(each * endpoints) /
				     (lane->stop - lane->start);

			least[i] = !j || own < least[i] ? own : least[i];
			most[i] = !j || own > most[i] ? own : most[i];
		}
	}
	if (!run.client)
		return;
	printf("{\"bench\": \"lanes\", \"kind\": \"%s\", \"size\": %zu, "
	       "\"threads\": %ld, \"endpoints\": %ld, \"inside\": %s, "
	       "\"processors_each\": %d, ",
	       bench_kind_name(run.options.kind), run.options.size, threads,
	       endpoints, run.options.inside ? "true" : "false", run.apart);
	printf("\"alone\": %.0f, \"rate\": %.0f, \"scaling\": %.3f, ",
	       median(alone), median(rate), median(rate) / median(alone));
	printf("\"least\": %.0f, \"most\": %.0f, \"alone_per_cpu\": %.0f, "
	       "\"per_cpu\": %.0f}\n", median(least), median(most),
	       median(alone_per_cpu), median(per_cpu));
	fflush(stdout);
}

static void place(void)
{
	int processors = bench_processors();

	run.apart = !run.options.inside && run.options.pinned &&
		    processors >= 2 * run.options.threads ? 2 : 1;
	run.yields = !run.options.inside && run.apart == 1;
	if (run.options.pinned && processors < run.options.threads) {
		fprintf(stderr, "fewer processors than threads: not pinned\n");
		run.options.pinned = false;
	}
}

static void run_lanes(struct bench_side *side)
{
	long threads = side->options.threads;

	run.options = side->options;
	run.client = side->client;
	if (run.options.kind > BENCH_TAGGED || threads < 1 ||
	    run.options.endpoints < 1 || run.options.window < 1 ||
	    (run.options.contexts && run.options.endpoints > 1)) {
		fprintf(stderr, "messages between threads with endpoints\n");
		exit(1);
	}
	if (run.options.threading == FI_THREAD_DOMAIN && threads > 1 &&
	    !run.options.own_domains) {
		fprintf(stderr, "-T domain: more threads need -d\n");
		exit(1);
	}
	if (run.options.threading == FI_THREAD_UNSPEC)
		run.options.threading = FI_THREAD_SAFE;
	side->options.threading = run.options.threading;
	place();
	run.lanes = room((size_t)threads, sizeof(*run.lanes));
	REQUIRE(!pthread_barrier_init(&run.barrier, NULL,
				      (unsigned)threads + 1));
	for (long i = 0; i < threads; i++) {
		run.lanes[i].number = (int)i;
		open_lane(&run.lanes[i], side);
	}
	for (long i = 0; i < threads; i++)
		REQUIRE(!pthread_create(&run.lanes[i].thread, NULL, lane_main,
					&run.lanes[i]));
	measure(side);
	run.over = true;
	meet_at_barrier();
	for (long i = 0; i < threads; i++)
		pthread_join(run.lanes[i].thread, NULL);
	if (!run.options.inside)
		bench_barrier(side);
	for (long i = 0; i < threads; i++) {
		close_endpoints(&run.lanes[i].in);
		close_endpoints(&run.lanes[i].out);
	}
	if (run.options.contexts)
		close_scalable();
	/* The domain may be the first one's. */
	for (long i = threads - 1; i >= 0; i--) {
		close_end(&run.lanes[i].in);
		close_end(&run.lanes[i].out);
	}
	free(run.lanes);
}

int main(int argc, char **argv)
{
	return bench_main_threads(argc, argv, run_lanes);
}
