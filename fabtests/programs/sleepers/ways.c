/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "ways.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "watch.h"

/* A time limit that is never reached. */
enum { AN_HOUR = 3600 * 1000 };

static int random_limit(struct sleeper *sleeper)
{
	switch (ct_below(&sleeper->chance, 6)) {
	case 0:
		return 1;
	case 1:
		return AN_HOUR;
	default:
		return -1;
	}
}

void sleeper_pauses(struct sleeper *sleeper)
{
	switch (ct_below(&sleeper->chance, 32)) {
	case 0:
		usleep(10000);
		break;
	case 1 ... 10:
		usleep((useconds_t)ct_below(&sleeper->chance, 1000));
		break;
	default:
		break;
	}
}

void *sleeper_opens(struct sleeper *sleeper, struct op *op)
{
	REQUIRE(!op->open);
	op->open = true;
	sleeper->open++;
	return &op->context;
}

static void came(struct sleeper *sleeper, const struct fi_cq_tagged_entry *entry)
{
	struct op *op = entry->op_context;

	watch_step();
	if (entry->flags & FI_REMOTE_CQ_DATA && entry->flags & FI_RMA) {
		REQUIRE(entry->data < 64);
		sleeper->data_came |= 1ULL << entry->data;
		return;
	}
	REQUIRE(op && op->open);
	op->open = false;
	sleeper->open--;
}

static void __attribute__((noreturn)) failed(struct fid_cq *cq)
{
	struct fi_cq_err_entry err = { 0 };

	EXPECT(fi_cq_readerr(cq, &err, 0), 1);
	ct_fail(__FILE__, __LINE__, "completion with error %d (%s)", err.err,
		fi_strerror(err.err));
}

/* Handles the result of a read. */
static void take(struct sleeper *sleeper, struct fid_cq *cq, ssize_t ret,
		 const struct fi_cq_tagged_entry *entries)
{
	if (ret == -FI_EAVAIL)
		failed(cq);
	if (ret == -FI_EAGAIN)
		return;
	REQUIRE(ret > 0);
	for (ssize_t i = 0; i < ret; i++)
		came(sleeper, &entries[i]);
}

void sleeper_drain(struct sleeper *sleeper)
{
	struct fi_cq_tagged_entry entries[4];

	for (size_t i = 0; i < sleeper->cq_count; i++) {
		struct fid_cq *cq = sleeper->cqs[i];
		ssize_t ret;

		do {
			ret = fi_cq_read(cq, entries, 4);
			take(sleeper, cq, ret, entries);
		} while (ret > 0);
	}
}

/* False if the system refuses: it permits only a limited depth of descriptors
 * that watch each other (fi_rxm(7)). Two objects may have one descriptor. */
static bool watch_all(int epoll, const struct pollfd *fds, size_t count)
{
	struct epoll_event event = { .events = EPOLLIN };

	for (size_t i = 0; i < count; i++) {
		if (!epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i].fd, &event) ||
		    errno == EEXIST)
			continue;
		REQUIRE(errno == EINVAL || errno == ELOOP);
		return false;
	}
	return true;
}

/* With either of the system's calls, which are equivalent for the sleeper. A
 * process that is stopped and continued has been interrupted. */
static void poll_one_of(struct sleeper *sleeper, struct pollfd *fds,
			size_t count)
{
	struct epoll_event event;
	int epoll = epoll_create1(EPOLL_CLOEXEC), ret;

	REQUIRE(epoll >= 0);
	if (ct_once_in(&sleeper->chance, 2) && watch_all(epoll, fds, count)) {
		watch_doing("asleep in epoll_wait");
		ret = epoll_wait(epoll, &event, 1, -1);
	} else {
		watch_doing("asleep in poll");
		ret = poll(fds, count, -1);
	}
	REQUIRE(ret > 0 || errno == EINTR);
	close(epoll);
}

/* Sleeps until one of these objects has something, if they let it. False if one
 * has no descriptor. */
static bool poll_for(struct sleeper *sleeper, struct fid **fids, size_t count)
{
	struct pollfd fds[3];
	int ret;

	for (size_t i = 0; i < count; i++) {
		fds[i] = (struct pollfd) { .events = POLLIN };
		ret = fi_control(fids[i], FI_GETWAIT, &fds[i].fd);
		if (ret == -FI_ENOSYS && fids[i]->fclass == FI_CLASS_CNTR)
			return false;
		OK(ret);
	}
	ret = fi_trywait(sleeper->peer->fabric, fids, count);
	if (ret == -FI_EAGAIN)
		return true;
	OK(ret);
	poll_one_of(sleeper, fds, count);
	watch_doing("awake");
	return true;
}

static void wait_for_set(struct sleeper *sleeper)
{
	int limit = random_limit(sleeper), ret;

	watch_doing("asleep in fi_wait");
	ret = fi_wait(sleeper->set, limit);
	watch_doing("awake");
	REQUIRE(ret == 0 || ret == -FI_EAGAIN ||
		(ret == -FI_ETIMEDOUT && limit == 1));
}

static void sleep_in_sread(struct sleeper *sleeper, struct fid_cq *cq,
			   size_t missing)
{
	struct fi_cq_tagged_entry entries[4];
	int limit = random_limit(sleeper);
	size_t threshold = missing ? missing : 1;
	const void *cond = sleeper->by_threshold ?
			   (const void *)threshold : NULL;
	fi_addr_t sources[4];
	ssize_t ret;

	if (ct_once_in(&sleeper->chance, 2)) {
		watch_doing("asleep in fi_cq_sread");
		ret = fi_cq_sread(cq, entries, 4, cond, limit);
	} else {
		watch_doing("asleep in fi_cq_sreadfrom");
		ret = fi_cq_sreadfrom(cq, entries, 4, sources, cond, limit);
	}
	watch_doing("awake");
	take(sleeper, cq, ret, entries);
}

static void sleep_at_queue(struct sleeper *sleeper, struct fid_cq *cq)
{
	struct fid *fids[2] = { &cq->fid };
	size_t count = 1;

	if (sleeper->wait == FI_WAIT_SET) {
		wait_for_set(sleeper);
	} else if (sleeper->wait == FI_WAIT_FD &&
		   !ct_once_in(&sleeper->chance, 3)) {
		/* At both queues, or at that one. */
		if (ct_once_in(&sleeper->chance, 2))
			for (count = 0; count < sleeper->cq_count; count++)
				fids[count] = &sleeper->cqs[count]->fid;
		poll_for(sleeper, fids, count);
	} else {
		sleep_in_sread(sleeper, cq, (size_t)sleeper->open);
		return;
	}
	sleeper_drain(sleeper);
}

void sleeper_until_done(struct sleeper *sleeper, struct fid_cq *cq,
			uint64_t data)
{
	while (sleeper->open || (sleeper->data_came & data) != data)
		sleep_at_queue(sleeper, cq);
}

static void sleep_at_counter(struct sleeper *sleeper, struct fid_cntr *cntr,
			     uint64_t value)
{
	int limit = random_limit(sleeper), ret;
	struct fid *fid = &cntr->fid;

	if (sleeper->wait == FI_WAIT_SET) {
		wait_for_set(sleeper);
		return;
	}
	if (sleeper->wait == FI_WAIT_FD && ct_once_in(&sleeper->chance, 2) &&
	    poll_for(sleeper, &fid, 1))
		return;
	watch_doing("asleep in fi_cntr_wait");
	ret = fi_cntr_wait(cntr, value, limit);
	watch_doing("awake");
	if (ret != -FI_ETIMEDOUT || limit != 1)
		EXPECT(ret, 0);
}

void sleeper_until_counted(struct sleeper *sleeper, struct fid_cntr *cntr,
			   uint64_t value)
{
	while (fi_cntr_read(cntr) < value) {
		sleep_at_counter(sleeper, cntr, value);
		/* Entries that stay would keep the set awake. */
		if (sleeper->wait == FI_WAIT_SET)
			sleeper_drain(sleeper);
	}
	REQUIRE(!fi_cntr_readerr(cntr));
	watch_step();
}

uint32_t sleeper_until_event(struct sleeper *sleeper,
			     struct fi_eq_cm_entry *entry)
{
	struct fid_eq *eq = sleeper->peer->eq.fid;
	struct fid *fid = &eq->fid;
	uint32_t event = 0;
	ssize_t ret;

	for (;;) {
		int limit = random_limit(sleeper);

		if (ct_once_in(&sleeper->chance, 2)) {
			watch_doing("asleep in fi_eq_sread");
			ret = fi_eq_sread(eq, &event, entry, sizeof(*entry),
					  limit, 0);
		} else {
			poll_for(sleeper, &fid, 1);
			ret = fi_eq_read(eq, &event, entry, sizeof(*entry), 0);
		}
		watch_doing("awake");
		if (ret != -FI_EAGAIN && ret != -FI_ETIMEDOUT)
			break;
	}
	EXPECT(ret, sizeof(*entry));
	return event;
}
