/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The resources that strangers at a listener can make a process use are
 * bounded. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "process.h"
#include "stranger.h"
#include "wait.h"

/* Reads connection requests for a moment, and rejects them or not. */
static int take_requests(struct ct_peer *peer, struct fid_pep *pep,
			 fid_t *handles, int most)
{
	double until = ct_now() + 1;
	int count = 0;

	while (count < most && ct_now() < until) {
		struct fi_eq_cm_entry entry;
		uint32_t type;
		ssize_t ret = fi_eq_read(peer->eq.fid, &type, &entry,
					 sizeof(entry), 0);

		if (ret == -FI_EAGAIN)
			continue;
		EXPECT(ret, sizeof(entry));
		REQUIRE(type == FI_CONNREQ);
		if (handles)
			handles[count] = entry.info->handle;
		else
			OK(fi_reject(pep, entry.info->handle, NULL, 0));
		fi_freeinfo(entry.info);
		count++;
	}
	return count;
}

/* Strangers ask for more connections than the application answers. */
static void unanswered(void)
{
	enum { STRANGERS = 300, LIMIT = 256 };
	static const unsigned char request[32] = { 3 };
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char bytes[32], name[256];
	static fid_t handles[STRANGERS];
	uint64_t mark = 1;
	int fds[STRANGERS], count;
	struct ct_pair pair;

	ct_open_strangers(&pair, &spec, name);
	memcpy(bytes, request, sizeof(bytes));
	memcpy(bytes + 24, &mark, sizeof(mark));
	for (int i = 0; i < STRANGERS; i++) {
		fds[i] = ct_connect_plainly(name);
		REQUIRE(write(fds[i], bytes, sizeof(bytes)) == sizeof(bytes));
		/* Received one after the other. */
		fi_eq_read(pair.a.eq.fid, &(uint32_t) { 0 }, NULL, 0, FI_PEEK);
	}
	count = take_requests(&pair.a, pair.pep, handles, STRANGERS);
	CHECK(count >= LIMIT && count < STRANGERS, "bounded");
	for (int i = 0; i < count; i++)
		OK(fi_reject(pair.pep, handles[i], NULL, 0));
	count += take_requests(&pair.a, pair.pep, NULL, STRANGERS - count);
	CHECK(count == STRANGERS, "others-later");
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
	ct_get_through(&pair, name);
	ct_close_pair(&pair);
}

/* Strangers ask for connections and are gone when they get them. */
static void vanished(void)
{
	enum { STRANGERS = 300 };
	const struct linger at_once = { .l_onoff = 1 };
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char bytes[32] = { 3 }, name[256];
	struct ct_event event;
	uint64_t mark = 1;
	struct ct_pair pair;

	ct_open_strangers(&pair, &spec, name);
	memcpy(bytes + 24, &mark, sizeof(mark));
	for (int i = 0; i < STRANGERS; i++) {
		int fd = ct_connect_plainly(name);

		REQUIRE(write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
		ct_wait_request(&pair.a, &event);
		REQUIRE(!setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once,
				    sizeof(at_once)));
		close(fd);
		ct_open_ep(&pair.a, event.info);
		/* Either the call fails or an event reports it. */
		fi_accept(pair.a.ep, NULL, 0);
		OK(fi_close(&pair.a.ep->fid));
		pair.a.ep = NULL;
		fi_freeinfo(event.info);
	}
	ct_get_through(&pair, name);
	ct_close_pair(&pair);
}

/* Requests that the application has not read end with the listener. */
static void unread(void)
{
	enum { STRANGERS = 20 };
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char bytes[32] = { 3 }, name[256];
	uint64_t mark = 1;
	int fds[STRANGERS], before;
	double until = ct_now() + ct_patience();
	struct ct_pair pair;

	ct_open_strangers(&pair, &spec, name);
	memcpy(bytes + 24, &mark, sizeof(mark));
	before = ct_descriptors();
	for (int i = 0; i < STRANGERS; i++) {
		fds[i] = ct_connect_plainly(name);
		REQUIRE(write(fds[i], bytes, sizeof(bytes)) == sizeof(bytes));
	}
	while (ct_descriptors() < before + 2 * STRANGERS) {
		REQUIRE(ct_now() < until);
		fi_eq_read(pair.a.eq.fid, &(uint32_t) { 0 }, NULL, 0, FI_PEEK);
	}
	OK(fi_close(&pair.pep->fid));
	pair.pep = NULL;
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
	CHECK(ct_descriptors() < before, "closed");
	ct_close_pair(&pair);
}

enum { SILENT = 600, KEPT = 512, OWN = 8 };

/* Connects without sending, until told to leave. */
static void silent_strangers(int fd)
{
	unsigned char name[CT_NAME];
	char word;

	ct_hear(fd, name, sizeof(name));
	for (int i = 0; i < SILENT; i++)
		ct_connect_plainly(name);
	ct_tell(fd, "x", 1);
	ct_hear(fd, &word, 1);
}

static void drive(struct ct_pair *pair)
{
	ct_progress(&pair->a);
	ct_progress_events(&pair->a);
}

/* Connections without a request are bounded in number and in time, and do not
 * block others. */
static void half_open(void)
{
	struct ct_child child = ct_spawn(silent_strangers);
	struct ct_spec spec = { .caps = FI_MSG };
	double until = ct_now() + ct_patience();
	unsigned char name[CT_NAME];
	struct ct_pair pair;
	int before, count;
	char word;

	ct_open_strangers(&pair, &spec, name);
	before = ct_descriptors();
	ct_begin(&child);
	ct_tell(child.fd, name, sizeof(name));
	while (recv(child.fd, &word, 1, MSG_DONTWAIT) != 1) {
		REQUIRE(ct_now() < until);
		drive(&pair);
	}
	ct_get_through(&pair, name);
	/* The number includes the descriptors of the connection between the
	 * two endpoints. */
	count = ct_descriptors() - before;
	CHECK(count > OWN && count <= KEPT + OWN, "number");
	until = ct_now() + 10 + ct_patience();
	while (ct_descriptors() - before > OWN) {
		REQUIRE(ct_now() < until);
		drive(&pair);
		usleep(1000);
	}
	ct_tell(child.fd, "x", 1);
	ct_join(&child);
	ct_close_pair(&pair);
}

enum { DESCRIPTORS = 400, IDLE = 1200, SHARE = DESCRIPTORS / 4, FEW = 64 };

/* Connects with a valid request and sends nothing more, until told to leave; a
 * third of them sends nothing at all. */
static void idle_strangers(int fd)
{
	unsigned char name[CT_NAME], request[40] = { 3 };
	uint64_t mark = 1;
	char word;

	ct_allow_descriptors(RLIM_INFINITY);
	ct_hear(fd, name, sizeof(name));
	request[3] = 8;
	memcpy(request + 24, &mark, sizeof(mark));
	request[32] = 1;
	for (int i = 0; i < IDLE; i++) {
		int stranger = ct_connect_plainly(name);

		/* Each with another port, at which no endpoint listens. */
		request[34] = (unsigned char)((i + 1) >> 8);
		request[35] = (unsigned char)(i + 1);
		if (i % 3)
			(void)!send(stranger, request, sizeof(request),
				    MSG_NOSIGNAL);
	}
	ct_tell(fd, "x", 1);
	ct_hear(fd, &word, 1);
}

/* The application can open files. */
static void open_files(void)
{
	int fds[FEW];

	for (int i = 0; i < FEW; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		REQUIRE(fds[i] >= 0);
	}
	for (int i = 0; i < FEW; i++)
		close(fds[i]);
}

/* Connections of peers that are in no address vector leave most descriptors to
 * the process, and do not block others. */
static void idle(void)
{
	struct ct_child child = ct_spawn(idle_strangers);
	struct ct_spec spec = { .caps = FI_MSG };
	double until = ct_now() + ct_patience();
	struct rlimit limit, before;
	unsigned char name[CT_NAME];
	struct ct_pair pair;
	int opened, most = 0;
	char word;

	REQUIRE(!getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = DESCRIPTORS;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
	ct_open_strangers(&pair, &spec, name);
	opened = ct_descriptors();
	ct_begin(&child);
	ct_tell(child.fd, name, sizeof(name));
	while (recv(child.fd, &word, 1, MSG_DONTWAIT) != 1) {
		int now;

		REQUIRE(ct_now() < until);
		drive(&pair);
		now = ct_descriptors() - opened;
		most = now > most ? now : most;
	}
	open_files();
	ct_get_through(&pair, name);
	open_files();
	/* As many may have sent no request yet. */
	CHECK(most > SHARE / 2 && most <= 2 * SHARE + OWN, "number");
	ct_tell(child.fd, "x", 1);
	ct_join(&child);
	ct_close_pair(&pair);
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &before));
}

static const struct ct_test tests[] = {
	{ "half-open", half_open, CT_BOTH },
	{ "idle", idle, CT_RDM },
	{ "unanswered", unanswered, CT_MSG },
	{ "unread", unread, CT_MSG },
	{ "vanished", vanished, CT_MSG },
};

CT_MAIN(tests)
