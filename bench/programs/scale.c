/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many processes of one host, each with one endpoint. Prints how long they take to open
 * endpoints and to know each other's addresses, for the first message of each to the first one
 * and its answer, for the first message of each to each of its partners, for one of such rounds
 * afterwards, and what a partner costs a process in memory and descriptors.
 *
 *   scale -p PROVIDER [-n PROCESSES] [-k PARTNERS] [-r ROUNDS] [-b] [-t SECONDS]
 *
 * -k: each process exchanges messages with so many others, its neighbours on a ring; all others
 * by default. -b: waiting processes poll and yield, they do not sleep. -t: the test is given up
 * after this time, 120 s by default.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "process.h"

enum { NAME = 128, PHASES = 5, IN_FLIGHT = 64 };

static struct {
	const char *provider;
	int processes, partners, rounds, seconds;
	bool polls;
} options = { .provider = "tcp", .processes = 16, .rounds = 10, .seconds = 120 };

/* What the processes share. */
static struct board {
	pthread_barrier_t barrier;
	double at[PHASES];		/* when each phase ended */
	long memory[2], descriptors[2];	/* of one of them, before and after the first exchange */
	char names[][NAME];
} *board;

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t *others;
static struct fi_context2 *contexts;
static int self, sent, received;

#define DO(call)								\
	do {									\
		long ret_ = (call);						\
		if (ret_) {							\
			fprintf(stderr, "%d: %s: %ld %s\n", self, #call, ret_,	\
				fi_strerror((int)-ret_));			\
			_exit(1);						\
		}								\
	} while (0)

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* KiB of the process's own: anonymous and shared with its peers. */
static long memory(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[128];
	long sum = 0, value;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &value) == 1 ||
		    sscanf(line, "RssShmem: %ld", &value) == 1)
			sum += value;
	if (file)
		fclose(file);
	return sum;
}

/* The processes wait for each other, asleep. */
static void phase_ends(int phase)
{
	pthread_barrier_wait(&board->barrier);
	if (!self)
		board->at[phase] = now();
	pthread_barrier_wait(&board->barrier);
}

static void open_endpoint(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = options.polls ? FI_WAIT_NONE : FI_WAIT_UNSPEC,
	};
	size_t length = NAME;
	const char *node;

	hints->fabric_attr->prov_name = strdup(options.provider);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	/* Internet addresses are those of this host alone. */
	node = strcmp(options.provider, "shm") ? "127.0.0.1" : NULL;
	DO(fi_getinfo(FI_VERSION(2, 0), node, NULL, node ? FI_SOURCE : 0, hints, &info));
	DO(fi_fabric(info->fabric_attr, &fabric, NULL));
	DO(fi_domain(fabric, info, &domain, NULL));
	DO(fi_av_open(domain, &av_attr, &av, NULL));
	if (fi_cq_open(domain, &cq_attr, &cq, NULL)) {
		/* Not every provider of the C library has queues to sleep at. */
		options.polls = true;
		cq_attr.wait_obj = FI_WAIT_NONE;
		DO(fi_cq_open(domain, &cq_attr, &cq, NULL));
	}
	DO(fi_endpoint(domain, info, &ep, NULL));
	DO(fi_ep_bind(ep, &av->fid, 0));
	DO(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	DO(fi_enable(ep));
	DO(fi_getname(&ep->fid, board->names[self], &length));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void learn_names(void)
{
	others = calloc((size_t)options.processes, sizeof(*others));
	contexts = calloc((size_t)options.processes * 2, sizeof(*contexts));
	for (int i = 0; i < options.processes; i++)
		DO(fi_av_insert(av, board->names[i], 1, &others[i], 0, NULL) - 1);
}

static void progress(bool may_sleep)
{
	struct fi_cq_tagged_entry entry;
	ssize_t count = fi_cq_read(cq, &entry, 1);

	if (count == -FI_EAGAIN && may_sleep && !options.polls)
		count = fi_cq_sread(cq, &entry, 1, NULL, 1000);
	else if (count == -FI_EAGAIN && may_sleep)
		sched_yield();
	if (count == 1) {
		if (entry.flags & FI_RECV)
			received++;
		else
			sent++;
	} else if (count != -FI_EAGAIN) {
		struct fi_cq_err_entry error = { 0 };

		fi_cq_readerr(cq, &error, 0);
		fprintf(stderr, "%d: %s\n", self, fi_strerror(error.err));
		_exit(1);
	}
}

static void post(int to, bool is_send, uint64_t tag)
{
	ssize_t ret;

	do {
		ret = is_send ?
			fi_tsend(ep, NULL, 0, NULL, others[to], tag, &contexts[2 * to]) :
			fi_trecv(ep, NULL, 0, NULL, FI_ADDR_UNSPEC, tag, 0, &contexts[2 * to + 1]);
		if (ret == -FI_EAGAIN)
			progress(true);
	} while (ret == -FI_EAGAIN);
	DO(ret);
}

static void finish(int sends, int receives)
{
	while (sent < sends || received < receives)
		progress(true);
	sent = received = 0;
}

/* Each one sends to the first and is answered. */
static void star(void)
{
	int last = options.processes - 1;

	if (self) {
		post(0, false, 1);
		post(0, true, 1);
		return finish(1, 1);
	}
	for (int i = 1; i <= last; i++)
		post(i, false, 1);
	while (received < last)
		progress(true);
	for (int i = 1; i <= last; i++)
		post(i, true, 1);
	finish(last, last);
}

/* Each one sends to its neighbours on a ring, the next ones at first, and hears from those. */
static void exchange(uint64_t tag)
{
	int partners = options.partners;

	for (int i = 1; i <= partners; i++)
		post((self + i) % options.processes, false, tag);
	for (int i = 1; i <= partners; i++) {
		post((self + i) % options.processes, true, tag);
		while (sent < i - IN_FLIGHT)
			progress(true);
	}
	finish(partners, partners);
}

static void run(void)
{
	/* Some in the middle: the first one knows all others. */
	bool is_looked_at = self == options.processes / 2;

	phase_ends(0);
	open_endpoint();
	phase_ends(1);
	learn_names();
	star();
	phase_ends(2);
	if (is_looked_at) {
		board->memory[0] = memory();
		board->descriptors[0] = ct_descriptors();
	}
	exchange(2);
	phase_ends(3);
	if (is_looked_at) {
		board->memory[1] = memory();
		board->descriptors[1] = ct_descriptors();
	}
	for (int i = 0; i < options.rounds; i++)
		exchange(3 + (uint64_t)i);
	phase_ends(4);
	DO(fi_close(&ep->fid));
	DO(fi_close(&cq->fid));
	DO(fi_close(&av->fid));
	DO(fi_close(&domain->fid));
	DO(fi_close(&fabric->fid));
}

static void read_options(int argc, char **argv)
{
	int letter;

	while ((letter = getopt(argc, argv, "p:n:k:r:bt:")) != -1) {
		switch (letter) {
		case 'p': options.provider = optarg; break;
		case 'n': options.processes = atoi(optarg); break;
		case 'k': options.partners = atoi(optarg); break;
		case 'r': options.rounds = atoi(optarg); break;
		case 'b': options.polls = true; break;
		case 't': options.seconds = atoi(optarg); break;
		default: exit(2);
		}
	}
	if (options.processes < 2 || options.rounds < 1)
		exit(2);
	if (options.partners <= 0 || options.partners >= options.processes)
		options.partners = options.processes - 1;
}

static pid_t parent;

static void give_up(int number)
{
	(void)number;
	if (getpid() == parent) {
		signal(SIGTERM, SIG_IGN);
		kill(0, SIGTERM);
	}
	_exit(3);
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t shared;
	double at[PHASES];
	int status, bad = 0;

	read_options(argc, argv);
	ct_allow_descriptors(1 << 20);
	board = mmap(NULL, sizeof(*board) + (size_t)options.processes * NAME,
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 1;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&board->barrier, &shared, (unsigned)options.processes);
	setpgid(0, 0);
	parent = getpid();
	signal(SIGALRM, give_up);
	for (self = 0; self < options.processes; self++) {
		pid_t child = fork();

		if (child < 0)
			give_up(0);
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run();
			_exit(0);
		}
	}
	alarm((unsigned)options.seconds);
	while (wait(&status) > 0 || errno == EINTR) {
		if (status && !bad++)
			give_up(0);
	}
	memcpy(at, board->at, sizeof(at));
	printf("{\"bench\": \"scale\", \"processes\": %d, \"partners\": %d, \"open_s\": %.3f, "
	       "\"star_s\": %.3f, \"first_s\": %.3f, \"round_ms\": %.2f, \"kib_per_partner\": %.1f, "
	       "\"descriptors_per_partner\": %.2f}\n", options.processes, options.partners,
	       at[1] - at[0], at[2] - at[1], at[3] - at[2],
	       (at[4] - at[3]) * 1e3 / options.rounds,
	       (double)(board->memory[1] - board->memory[0]) / options.partners,
	       (double)(board->descriptors[1] - board->descriptors[0]) / options.partners);
	return bad != 0;
}
