/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Peers that are killed, a port that goes down for good, a device that is
 * removed: all operations in progress end, and end once. A port that comes up
 * again ends nothing.
 */
#include "ends.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_rma.h>

static struct place place;
static struct end a, b;

/* Operations in progress; the context of each is its index. */
enum { MOST = 16 };
static bool ended[MOST];

/* Each of them ends, with a success or as something that was cut off. */
static void all_end(struct fid_cq *cq, bool *contexts, int count)
{
	double until = ct_now() + ct_patience();
	int done = 0, i;

	while (done < count) {
		struct fi_cq_err_entry error = { 0 };
		struct fi_cq_data_entry data;
		ssize_t read = fi_cq_read(cq, &data, 1);
		void *context;

		REQUIRE(ct_now() < until);
		if (read == -FI_EAGAIN)
			continue;
		context = data.op_context;
		if (read == -FI_EAVAIL) {
			EXPECT(fi_cq_readerr(cq, &error, 0), 1);
			REQUIRE(error.err == FI_ECANCELED || error.err == FI_EIO);
			context = error.op_context;
		}
		i = (int)((bool *)context - contexts);
		REQUIRE(i >= 0 && i < count && !contexts[i]);
		contexts[i] = true;
		done++;
	}
}

enum phase { CONNECTING, IDLE, SENDING, RECEIVING, RMA, CLOSING };
enum { ROUNDS = 20, RECEIVES = 8, REQUESTS = 8, LENGTH = 100000 };

/* The messages to a child, and from it. */
struct line {
	pid_t pid;
	int there[2], back[2];
};

/* The point that it has reached, and the address of its memory. */
struct mark {
	uint64_t address, key;
};

static void victim(const struct line *line, enum phase phase)
{
	struct sockaddr_storage address;
	struct fi_eq_cm_entry entry;
	struct fi_info *mine;
	struct mark mark;
	int i;

	if (read(line->there[0], &address, sizeof(address)) != sizeof(address))
		_exit(0);
	open_place(&place, NULL);
	mine = fi_dupinfo(place.info);
	open_end(&a, &place, mine, NULL, NULL);
	for (i = 0; i < 2; i++)
		OK(fi_recv(a.ep, a.memory, MEMORY, a.desc, 0, &a));
	OK(fi_connect(a.ep, &address, NULL, 0));
	if (phase == CONNECTING)
		/* Its request is sent by the progress of this read. */
		fi_eq_sread(place.eq, &(uint32_t){ 0 }, &entry, sizeof(entry), 1000, 0);
	else
		event_of(&place, FI_CONNECTED, &entry, sizeof(entry));
	mark.address = (uint64_t)(uintptr_t)a.memory;
	mark.key = a.key;
	if (write(line->back[1], &mark, sizeof(mark)) != sizeof(mark))
		_exit(1);
	for (;;) {
		if (phase == SENDING) {
			OK(fi_send(a.ep, a.memory, LENGTH, a.desc, 0, &a));
			done(a.tx, &a);
		} else if (phase == CLOSING) {
			OK(fi_shutdown(a.ep, 0));
			close_end(&a);
			phase = IDLE;
		} else {
			pause();
		}
	}
}

static struct mark its_mark(const struct line *line)
{
	struct mark mark;

	REQUIRE(read(line->back[0], &mark, sizeof(mark)) == sizeof(mark));
	return mark;
}

static void kill_it(const struct line *line)
{
	REQUIRE(!kill(line->pid, SIGKILL));
	REQUIRE(waitpid(line->pid, NULL, 0) == line->pid);
}

/* The peer is gone before it is accepted, which is reported now or later. */
static void accept_nobody(void)
{
	struct fi_eq_cm_entry entry;
	uint32_t kind;
	ssize_t read;

	if (fi_accept(b.ep, NULL, 0))
		return;
	read = fi_eq_sread(place.eq, &kind, &entry, sizeof(entry),
			   (int)(ct_patience() * 1000), 0);
	if (read == -FI_EAVAIL)
		failed_event(&place);
	else
		REQUIRE(read > 0 && kind == FI_SHUTDOWN);
}

/* Requests to the peer, more than it has receives for; how many. */
static int requests(enum phase phase, const struct mark *mark, bool *contexts)
{
	int i, count = phase == RECEIVING || phase == RMA ? REQUESTS : 0;

	for (i = 0; i < count; i++) {
		uint64_t there = mark->address + (uint64_t)i * LENGTH;

		if (phase == RECEIVING)
			OK(fi_send(b.ep, b.memory, LENGTH, b.desc, 0, &contexts[i]));
		else if (i % 2)
			OK(fi_read(b.ep, b.memory, LENGTH, b.desc, 0, there, mark->key,
				   &contexts[i]));
		else
			OK(fi_write(b.ep, b.memory, LENGTH, b.desc, 0, there, mark->key,
				    &contexts[i]));
	}
	return count;
}

static void round_with(const struct line *line, enum phase phase)
{
	struct fi_eq_cm_entry entry;
	struct mark mark;
	int i, count;

	memset(ended, 0, sizeof(ended));
	REQUIRE(write(line->there[1], &place.address, sizeof(place.address)) ==
		sizeof(place.address));
	event_of(&place, FI_CONNREQ, &entry, sizeof(entry));
	if (phase == CONNECTING) {
		its_mark(line);
		kill_it(line);
	}
	open_end(&b, &place, entry.info, NULL, NULL);
	for (i = 0; i < RECEIVES; i++)
		OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &ended[i]));
	if (phase == CONNECTING) {
		accept_nobody();
	} else {
		OK(fi_accept(b.ep, NULL, 0));
		event_of(&place, FI_CONNECTED, &entry, sizeof(entry));
		mark = its_mark(line);
		count = requests(phase, &mark, ended + RECEIVES);
		kill_it(line);
		event_of(&place, FI_SHUTDOWN, &entry, sizeof(entry));
		all_end(b.rx, ended, RECEIVES);
		all_end(b.tx, ended + RECEIVES, count);
		REQUIRE(stays_empty(b.rx) && stays_empty(b.tx));
	}
	fi_freeinfo(b.info);
	close_end(&b);
}

static void killed(enum phase phase)
{
	static struct line lines[ROUNDS];
	int round;

	/* Children of a process that has devices open cannot use them. */
	for (round = 0; round < ROUNDS; round++) {
		struct line *line = &lines[round];

		REQUIRE(!pipe(line->there) && !pipe(line->back));
		line->pid = fork();
		REQUIRE(line->pid >= 0);
		if (!line->pid)
			victim(line, phase);
	}
	open_place(&place, NULL);
	for (round = 0; round < ROUNDS; round++)
		round_with(&lines[round], phase);
	close_place(&place);
}

static void killed_connecting(void)
{
	killed(CONNECTING);
}

static void killed_idle(void)
{
	killed(IDLE);
}

static void killed_sending(void)
{
	killed(SENDING);
}

static void killed_receiving(void)
{
	killed(RECEIVING);
}

static void killed_rma(void)
{
	killed(RMA);
}

static void killed_closing(void)
{
	killed(CLOSING);
}

/* Both ends get events, and their receives end. */
static void both_end(void)
{
	struct fi_eq_cm_entry entry;

	event_of(&place, FI_SHUTDOWN, &entry, sizeof(entry));
	event_of(&place, FI_SHUTDOWN, &entry, sizeof(entry));
	all_end(a.rx, ended, RECEIVES);
	all_end(b.rx, ended + RECEIVES, RECEIVES);
	EXPECT(fi_send(a.ep, a.memory, 8, a.desc, 0, &a), -FI_ENOTCONN);
	EXPECT(fi_send(b.ep, b.memory, 8, b.desc, 0, &b), -FI_ENOTCONN);
}

static void start(void)
{
	int i;

	open_place(&place, NULL);
	connect_ends(&place, NULL, &a, &b, NULL);
	memset(ended, 0, sizeof(ended));
	for (i = 0; i < RECEIVES; i++) {
		OK(fi_recv(a.ep, a.memory, MEMORY, a.desc, 0, &ended[i]));
		OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &ended[RECEIVES + i]));
	}
}

static void stop(void)
{
	close_end(&a);
	close_end(&b);
	close_place(&place);
}

/*
 * Runs the command that disables the second device of dev/rdma-machine, and
 * creates it anew when it is no longer in use.
 */
static void spoil(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	REQUIRE(pid >= 0);
	if (!pid) {
		ct_opt.source = "10.77.1.1";
		run();
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	EXPECT(status, 0);
	REQUIRE(!system("rdma link delete rxe1 2>/dev/null; "
			"for i in 1 2 3 4 5 6 7 8 9 10; do "
			"rdma link show rxe1/1 >/dev/null 2>&1 || break; sleep 1; done; "
			"rdma link add rxe1 type rxe netdev dummy0"));
}

/* A message from a to b, into the receive after those that are there. */
static void passes(int receive)
{
	struct fi_cq_data_entry data;

	a.memory[0] = (unsigned char)(receive + 1);
	POST(fi_send(a.ep, a.memory, 8, a.desc, 0, &a));
	data = done(b.rx, &ended[RECEIVES + receive]);
	EXPECT(data.len, 8);
	EXPECT(b.memory[0], receive + 1);
	done(a.tx, &a);
}

/* Asynchronous events of devices are read, and the connection still works. */
static void no_event(void)
{
	struct fi_eq_cm_entry entry;
	uint32_t kind;

	EXPECT(fi_eq_sread(place.eq, &kind, &entry, sizeof(entry), 500, 0), -FI_EAGAIN);
}

static void with_port_down_and_up(void)
{
	start();
	passes(0);
	REQUIRE(!system("ip link set dummy0 down"));
	no_event();
	REQUIRE(!system("ip link set dummy0 up"));
	no_event();
	passes(1);
	stop();
}

/* The next completion, a failure, which may take all retransmissions of a device. */
static struct fi_cq_err_entry given_up(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_data_entry entry;
	double until = ct_now() + 6 * ct_patience();
	ssize_t read;

	while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		REQUIRE(ct_now() < until);
	EXPECT(read, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	return error;
}

/* The device gives up on the data, and reports that. */
static void with_port_down(void)
{
	struct fi_cq_err_entry error;

	start();
	REQUIRE(!system("ip link set dummy0 down"));
	no_event();
	OK(fi_send(a.ep, a.memory, 8, a.desc, 0, &a));
	error = given_up(a.tx);
	EXPECT(error.err, FI_EIO);
	REQUIRE(error.op_context == &a);
	all_end(a.rx, ended, RECEIVES);
	stop();
	REQUIRE(!system("ip link set dummy0 up"));
}

static void port_down_and_up(void)
{
	spoil(with_port_down_and_up);
}

static void port_down(void)
{
	spoil(with_port_down);
}

/* The command waits until the device is not in use. */
static void remove_device(void)
{
	pid_t remover = fork();

	REQUIRE(remover >= 0);
	if (!remover) {
		execlp("rdma", "rdma", "link", "delete", "rxe1", NULL);
		_exit(127);
	}
}

static void with_device_gone(void)
{
	start();
	remove_device();
	both_end();
	stop();
}

static void device_gone(void)
{
	spoil(with_device_gone);
}

/* Receives of datagrams, which no event queue reports: the threads that wait
 * for them see it. */
static void receives_of_datagrams(enum fi_wait_obj wait)
{
	struct fi_info *hints = hints_for(FI_EP_DGRAM, FI_MSG);
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = wait };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	double until = ct_now() + 3 * ct_patience();
	enum { ROOM = 512 };
	/* Pages of their own, which a child does not get. */
	unsigned char *memory = aligned_alloc(4096, RECEIVES * ROOM);
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fi_info *info;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	int i, count;

	hints->domain_attr->name = strdup("rxe1-dgram");
	OK(fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	OK(fi_av_open(domain, &av_attr, &av, NULL));
	OK(fi_endpoint(domain, info, &ep, NULL));
	OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(ep, &av->fid, 0));
	OK(fi_enable(ep));
	REQUIRE(memory);
	OK(fi_mr_reg(domain, memory, RECEIVES * ROOM, FI_RECV, 0, 0, 0, &mr, NULL));
	memset(ended, 0, sizeof(ended));
	for (i = 0; i < RECEIVES; i++)
		OK(fi_recv(ep, memory + i * ROOM, ROOM, fi_mr_desc(mr), FI_ADDR_UNSPEC,
			   &ended[i]));
	remove_device();
	for (count = 0; count < RECEIVES; count++) {
		struct fi_cq_err_entry error = { 0 };
		struct fi_cq_data_entry entry;
		ssize_t read;

		do {
			REQUIRE(ct_now() < until);
			read = wait == FI_WAIT_NONE ? fi_cq_read(cq, &entry, 1) :
				fi_cq_sread(cq, &entry, 1, NULL, (int)(ct_patience() * 1000));
		} while (read == -FI_EAGAIN);
		EXPECT(read, -FI_EAVAIL);
		EXPECT(fi_cq_readerr(cq, &error, 0), 1);
		EXPECT(error.err, FI_ECANCELED);
		i = (int)((bool *)error.op_context - ended);
		REQUIRE(i >= 0 && i < RECEIVES && !ended[i]);
		ended[i] = true;
	}
	OK(fi_close(&ep->fid));
	OK(fi_close(&mr->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	free(memory);
}

static void with_datagrams(void)
{
	receives_of_datagrams(FI_WAIT_NONE);
}

static void with_a_sleeper(void)
{
	receives_of_datagrams(FI_WAIT_UNSPEC);
}

static void device_gone_datagrams(void)
{
	spoil(with_datagrams);
}

static void device_gone_asleep(void)
{
	spoil(with_a_sleeper);
}

static const struct ct_test tests[] = {
	{ "killed-connecting", killed_connecting, CT_MSG | CT_SLOW },
	{ "killed-idle", killed_idle, CT_MSG | CT_SLOW },
	{ "killed-sending", killed_sending, CT_MSG | CT_SLOW },
	{ "killed-receiving", killed_receiving, CT_MSG | CT_SLOW },
	{ "killed-rma", killed_rma, CT_MSG | CT_SLOW },
	{ "killed-closing", killed_closing, CT_MSG | CT_SLOW },
	{ "port-down", port_down, CT_MSG },
	{ "port-down-and-up", port_down_and_up, CT_MSG },
	{ "device-gone", device_gone, CT_MSG },
	{ "device-gone-datagrams", device_gone_datagrams, CT_MSG },
	{ "device-gone-asleep", device_gone_asleep, CT_MSG },
};

CT_MAIN(tests)
