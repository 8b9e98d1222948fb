/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "side.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connect.h"
#include "pattern.h"
#include "process.h"
#include "wait.h"

#define TAG 7
#define OPTIONS "k:e:s:n:w:N:p:a:L:C:T:1fz"
#define THREAD_OPTIONS "t:m:dic"

static const char *const kind_names[BENCH_KINDS] = {
	"msg", "tagged", "write", "read", "atomic",
};

const char *bench_kind_name(enum bench_kind kind)
{
	return kind_names[kind];
}

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [-k msg|tagged|write|read|atomic] [-e rdm|msg|dgram]\n"
		"       [-s bytes] [-n iterations] [-w window] [-N peers]\n"
		"       [-p provider] [-a node|none] [-T safe|completion|domain]\n"
		"       [-1] [-f] [-z] [-L port | -C host:port]\n"
		"Without -L (server) or -C (client) both sides run here.\n"
		"  -1  do not pin to processors\n"
		"  -f  the sender writes its buffer before each message (latency)\n"
		"  -z  the target of remote access sleeps (onesided)\n"
		"Programs with threads:\n"
		"       [-t threads] [-m endpoints of each] [-d] [-i] [-c]\n"
		"  -d  a domain for each thread\n"
		"  -i  both sides in one process, and in one thread each pair\n"
		"  -c  the same, with contexts of scalable endpoints\n",
		program);
	exit(1);
}

void bench_tell(struct bench_side *side, const void *data, size_t len)
{
	REQUIRE(write(side->fd, data, len) == (ssize_t)len);
}

void bench_hear(struct bench_side *side, void *data, size_t len)
{
	char *at = data;

	while (len) {
		ssize_t got = read(side->fd, at, len);

		if (got < 0 && errno == EINTR)
			continue;
		REQUIRE(got > 0);
		at += got;
		len -= (size_t)got;
	}
}

void bench_barrier(struct bench_side *side)
{
	char byte = 'b';

	bench_tell(side, &byte, 1);
	bench_hear(side, &byte, 1);
}

static int listen_once(const char *port)
{
	struct addrinfo hints = {
		.ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
	}, *res;
	int fd, conn, one = 1;

	REQUIRE(!getaddrinfo(NULL, port, &hints, &res));
	fd = socket(res->ai_family, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	REQUIRE(!bind(fd, res->ai_addr, res->ai_addrlen));
	REQUIRE(!listen(fd, 1));
	conn = accept(fd, NULL, NULL);
	REQUIRE(conn >= 0);
	close(fd);
	freeaddrinfo(res);
	return conn;
}

static int call(char *where)
{
	struct addrinfo hints = {
		.ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
	}, *res;
	char *port = strrchr(where, ':');
	double until = ct_now() + ct_patience();
	int fd;

	REQUIRE(port);
	*port++ = '\0';
	REQUIRE(!getaddrinfo(where, port, &hints, &res));
	for (;;) {
		fd = socket(res->ai_family, SOCK_STREAM, 0);
		if (!connect(fd, res->ai_addr, res->ai_addrlen))
			break;
		/* The server may still be starting. */
		REQUIRE(ct_now() < until);
		close(fd);
		usleep(20000);
	}
	freeaddrinfo(res);
	return fd;
}

int bench_processors(void)
{
	cpu_set_t allowed;

	REQUIRE(!sched_getaffinity(0, sizeof(allowed), &allowed));
	return CPU_COUNT(&allowed);
}

void bench_pin(int which)
{
	cpu_set_t allowed, one;
	int seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) ||
	    CPU_COUNT(&allowed) < 2)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || seen++ != which)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
}

static enum fi_ep_type endpoint_of(const char *program, const char *name)
{
	if (!strcmp(name, "msg"))
		return FI_EP_MSG;
	if (!strcmp(name, "dgram"))
		return FI_EP_DGRAM;
	if (strcmp(name, "rdm"))
		usage(program);
	return FI_EP_RDM;
}

static enum fi_threading threading_of(const char *program, const char *name)
{
	if (!strcmp(name, "safe"))
		return FI_THREAD_SAFE;
	if (!strcmp(name, "completion"))
		return FI_THREAD_COMPLETION;
	if (strcmp(name, "domain"))
		usage(program);
	return FI_THREAD_DOMAIN;
}

static int start(int argc, char **argv, void (*run)(struct bench_side *side),
		 bool threads)
{
	struct bench_side side = {
		.options = { .kind = BENCH_TAGGED, .size = 8, .window = 64,
			     .peers = 1000, .threads = 2, .endpoints = 1,
			     .threading = FI_THREAD_UNSPEC, .pinned = true },
	};
	char *server = NULL, *client = NULL;
	int c, fds[2], status;
	pid_t pid;

	while ((c = getopt(argc, argv, threads ? OPTIONS THREAD_OPTIONS
					       : OPTIONS)) != -1) {
		switch (c) {
		case 'k':
			side.options.kind = BENCH_KINDS;
			for (int i = 0; i < BENCH_KINDS; i++)
				if (!strcmp(optarg, kind_names[i]))
					side.options.kind = i;
			if (side.options.kind == BENCH_KINDS)
				usage(argv[0]);
			break;
		case 'e':
			ct_opt.type = endpoint_of(argv[0], optarg);
			break;
		case 's':
			side.options.size = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			side.options.iterations = atol(optarg);
			break;
		case 'w':
			side.options.window = atol(optarg);
			break;
		case 'N':
			side.options.peers = atol(optarg);
			break;
		case 'p':
			ct_opt.provider = optarg;
			break;
		case 'a':
			ct_opt.source = strcmp(optarg, "none") ? optarg : NULL;
			break;
		case 'L':
			server = optarg;
			break;
		case 'C':
			client = optarg;
			break;
		case '1':
			side.options.pinned = false;
			break;
		case 'f':
			side.options.fresh = true;
			break;
		case 'z':
			side.options.idle = true;
			break;
		case 't':
			side.options.threads = atol(optarg);
			break;
		case 'm':
			side.options.endpoints = atol(optarg);
			break;
		case 'T':
			side.options.threading = threading_of(argv[0], optarg);
			break;
		case 'd':
			side.options.own_domains = true;
			break;
		case 'i':
			side.options.inside = true;
			break;
		case 'c':
			side.options.contexts = side.options.inside = true;
			break;
		default:
			usage(argv[0]);
		}
	}
	if (side.options.inside) {
		side.client = true;
		side.fd = -1;
		run(&side);
		return 0;
	}
	if (server || client) {
		side.client = client != NULL;
		side.fd = client ? call(client) : listen_once(server);
		if (side.options.pinned && !threads)
			bench_pin(!side.client);
		run(&side);
		return 0;
	}
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	REQUIRE(pid >= 0);
	side.client = pid != 0;
	side.fd = fds[pid == 0];
	close(fds[pid != 0]);
	if (side.options.pinned && !threads)
		bench_pin(!side.client);
	run(&side);
	if (!pid)
		_exit(0);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int bench_main(int argc, char **argv, void (*run)(struct bench_side *side))
{
	return start(argc, argv, run, false);
}

int bench_main_threads(int argc, char **argv,
		       void (*run)(struct bench_side *side))
{
	return start(argc, argv, run, true);
}

void bench_run_crowd(struct bench_side *side, bench_part *hub, bench_part *crowd)
{
	const struct ct_spec spec = {
		.caps = FI_TAGGED, .format = FI_CQ_FORMAT_CONTEXT,
	};

	ct_opt.type = FI_EP_RDM;
	ct_allow_descriptors(RLIM_INFINITY);
	if (side->client)
		hub(side, &spec);
	else
		crowd(side, &spec);
}

static uint64_t wanted(enum bench_kind kind)
{
	switch (kind) {
	case BENCH_MSG:
		return FI_MSG;
	case BENCH_TAGGED:
		return FI_TAGGED;
	case BENCH_ATOMIC:
		return FI_MSG | FI_ATOMIC;
	default:
		return FI_MSG | FI_RMA;
	}
}

void bench_open(struct bench_side *side, const struct ct_peer *shared)
{
	struct ct_spec spec = {
		.caps = wanted(side->options.kind),
		.format = FI_CQ_FORMAT_CONTEXT,
		.threading = side->options.threading,
	};

	ct_open_domain(&side->peer, &spec, ct_getinfo(&spec),
		       shared ? shared->fabric : NULL,
		       shared ? shared->domain : NULL);
}

void bench_meet(struct bench_side *side)
{
	struct ct_peer *peer = &side->peer;
	unsigned char name[256] = { 0 };
	struct ct_event request;

	if (ct_opt.type != FI_EP_MSG) {
		ct_open_ep(peer, peer->info);
		ct_name(&peer->ep->fid, name, sizeof(name));
		bench_tell(side, name, sizeof(name));
		bench_hear(side, name, sizeof(name));
		peer->to = ct_insert(peer, name);
	} else if (!side->client) {
		side->pep = ct_listen(peer);
		ct_name(&side->pep->fid, name, sizeof(name));
		bench_tell(side, name, sizeof(name));
		ct_wait_request(peer, &request);
		ct_accept(peer, &request, NULL, 0);
		ct_wait_connected(peer);
	} else {
		ct_open_ep(peer, peer->info);
		bench_hear(side, name, sizeof(name));
		OK(fi_connect(peer->ep, name, NULL, 0));
		ct_wait_connected(peer);
	}
}

void bench_connect(struct bench_side *side)
{
	struct ct_peer *peer = &side->peer;
	uint64_t target[2], theirs[2];
	size_t room = side->options.size > 64 ? side->options.size : 64;

	bench_open(side, NULL);
	bench_meet(side);
	ct_memory_open(peer, &side->out, room,
		       FI_SEND | FI_WRITE | FI_READ);
	ct_memory_open(peer, &side->in, room, wanted(side->options.kind) &
		       (FI_RMA | FI_ATOMIC) ?
		       FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE : FI_RECV);
	ct_fill(side->out.data, room, 1);
	target[0] = side->in.addr;
	target[1] = side->in.key;
	bench_tell(side, target, sizeof(target));
	bench_hear(side, theirs, sizeof(theirs));
	side->addr = theirs[0];
	side->key = theirs[1];
}

void bench_close(struct bench_side *side)
{
	bench_barrier(side);
	ct_memory_close(&side->out);
	ct_memory_close(&side->in);
	if (side->pep)
		OK(fi_close(&side->pep->fid));
	ct_close_peer(&side->peer);
}

static inline ssize_t try_post(struct bench_side *side, void *context)
{
	struct ct_peer *peer = &side->peer;
	size_t size = side->options.size;

	switch (side->options.kind) {
	case BENCH_MSG:
		return fi_send(peer->ep, side->out.data, size, side->out.desc,
			       peer->to, context);
	case BENCH_TAGGED:
		return fi_tsend(peer->ep, side->out.data, size, side->out.desc,
				peer->to, TAG, context);
	case BENCH_WRITE:
		return fi_write(peer->ep, side->out.data, size, side->out.desc,
				peer->to, side->addr, side->key, context);
	case BENCH_READ:
		return fi_read(peer->ep, side->out.data, size, side->out.desc,
			       peer->to, side->addr, side->key, context);
	default:
		return fi_fetch_atomic(peer->ep, side->out.data, size / 8,
				       side->out.desc, side->out.data,
				       side->out.desc, peer->to, side->addr,
				       side->key, FI_UINT64, FI_SUM, context);
	}
}

static void drive(struct bench_side *side)
{
	fi_cq_read(side->peer.tx.fid, NULL, 0);
	fi_cq_read(side->peer.rx.fid, NULL, 0);
}

void bench_post(struct bench_side *side, void *context)
{
	ssize_t ret;

	while ((ret = try_post(side, context)) == -FI_EAGAIN)
		drive(side);
	OK(ret);
}

void bench_post_receive(struct bench_side *side, void *context)
{
	struct ct_peer *peer = &side->peer;
	size_t size = side->options.size;
	ssize_t ret;

	do {
		ret = side->options.kind == BENCH_TAGGED ?
		      fi_trecv(peer->ep, side->in.data, size, side->in.desc,
			       FI_ADDR_UNSPEC, TAG, 0, context) :
		      fi_recv(peer->ep, side->in.data, size, side->in.desc,
			      FI_ADDR_UNSPEC, context);
		if (ret == -FI_EAGAIN)
			drive(side);
	} while (ret == -FI_EAGAIN);
	OK(ret);
}

static void failed_entry(struct fid_cq *cq)
{
	struct fi_cq_err_entry err = { 0 };

	EXPECT(fi_cq_readerr(cq, &err, 0), 1);
	ct_fail(__FILE__, __LINE__, "completion with error %d (%s)", err.err,
		fi_strerror(err.err));
}

void bench_wait(struct bench_side *side, struct fid_cq *cq)
{
	struct fi_cq_entry entry;
	ssize_t ret;

	(void)side;
	while ((ret = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		;
	if (ret == -FI_EAVAIL)
		failed_entry(cq);
	EXPECT(ret, 1);
}

long bench_reap(struct fid_cq *cq)
{
	struct fi_cq_entry entries[64];
	ssize_t ret = fi_cq_read(cq, entries, 64);

	if (ret == -FI_EAGAIN)
		return 0;
	if (ret == -FI_EAVAIL)
		failed_entry(cq);
	REQUIRE(ret > 0);
	return ret;
}

void bench_serve(struct bench_side *side)
{
	struct pollfd pfd = { .fd = side->fd, .events = POLLIN };

	/* Looking at the socket costs more than a progress call. */
	for (;;) {
		for (int i = 0; i < 1000; i++)
			drive(side);
		if (poll(&pfd, 1, 0) > 0)
			return;
	}
}
