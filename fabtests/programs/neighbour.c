/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two processes of one host. Data for which they share memory, or that one can
 * copy from the other, does not pass through the network, which is the test's
 * own and counts; everything else does, and arrives all the same.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "network.h"
#include "pattern.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { ROOM = 4 << 20, NOBODY = 65534 };

/* The plan of the two processes. */
static struct plan {
	bool is_copied;
	bool other_user;
	bool reads_nothing, offers_nothing;
	/* Whether the two stay with their socket. */
	bool by_socket;
} plan;

/* One of the two processes, and its knowledge of the other. */
struct side {
	struct ct_peer peer;
	struct ct_memory memory;
	struct ct_card other;
	struct fid_pep *pep;
};

static void open_side(struct side *side, int fd, bool listens)
{
	static struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA,
		.counters = FI_READ | FI_WRITE | FI_REMOTE_READ |
			    FI_REMOTE_WRITE,
	};
	struct ct_card own = { 0 };
	bool rdm = ct_opt.type == FI_EP_RDM;

	ct_open_domain(&side->peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_memory_open(&side->peer, &side->memory, 2 * ROOM, FI_READ | FI_WRITE |
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	if (rdm)
		ct_open_ep(&side->peer, side->peer.info);
	else if (listens)
		side->pep = ct_listen(&side->peer);
	own.addr = side->memory.addr;
	own.key = side->memory.key;
	ct_meet(&side->peer, &own, &side->other, fd, side->pep);
}

static void close_side(struct side *side)
{
	ct_memory_close(&side->memory);
	if (side->pep)
		OK(fi_close(&side->pep->fid));
	ct_close_peer(&side->peer);
}

static void stay_with_socket(void)
{
	if (plan.by_socket)
		REQUIRE(!setenv("FI_TCP_LOCAL", "off", 1));
}

static void limit(const char *name, bool is_limited)
{
	if (is_limited)
		REQUIRE(!setenv(name, "18446744073709551615", 1));
}

/* One write, into the half of the other's memory that is for this. */
static void write_back(struct side *side)
{
	static struct fi_context2 context;
	struct ct_peer *peer = &side->peer;

	POST(peer, fi_write(peer->ep, side->memory.data, ROOM,
			    side->memory.desc, peer->to, side->other.addr + ROOM,
			    side->other.key, &context));
	ct_done(peer, &peer->tx, &context);
}

/* Permits reads and writes of its memory, and writes on request, until told to
 * leave. */
static void owner(int fd)
{
	static struct side side;
	char word = 0;

	if (plan.other_user)
		REQUIRE(!setresuid(NOBODY, NOBODY, NOBODY));
	stay_with_socket();
	limit("FI_TCP_LOCAL_MESSAGE_SIZE", plan.offers_nothing);
	open_side(&side, fd, true);
	ct_fill(side.memory.data, ROOM, 1);
	ct_tell(fd, "r", 1);
	while (word != 'q') {
		ct_pull(&side.peer.rx);
		if (recv(fd, &word, 1, MSG_DONTWAIT) == 1 && word == 'w') {
			write_back(&side);
			ct_tell(fd, "d", 1);
		}
	}
	ct_tell(fd, "b", 1);
	ct_hear(fd, &word, 1);
	close_side(&side);
}

/* Bytes that have passed through the network. */
static uint64_t passed(void)
{
	FILE *file = fopen("/proc/thread-self/net/dev", "re");
	uint64_t bytes = 0;
	char line[512];

	REQUIRE(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, " lo: %" SCNu64, &bytes) == 1)
			break;
	fclose(file);
	return bytes;
}

static void access_all(struct side *side, enum ct_rma_form form, size_t len,
		       size_t pieces, size_t remote_pieces)
{
	static struct fi_context2 context;
	struct ct_rma rma = {
		.buf = side->memory.data, .len = len, .pieces = pieces,
		.remote_pieces = remote_pieces, .desc = side->memory.desc,
		.addr = side->other.addr, .key = side->other.key,
		.flags = FI_COMPLETION, .context = &context,
	};

	POST(&side->peer, ct_rma(&side->peer, form, &rma));
	ct_done(&side->peer, &side->peer.tx, &context);
}

static void read_all(struct side *side, size_t len, size_t pieces,
		     size_t remote_pieces, unsigned seed)
{
	memset(side->memory.data, 0, len);
	access_all(side, CT_READMSG, len, pieces, remote_pieces);
	REQUIRE(ct_holds(side->memory.data, len, seed));
}

/* Writes, and reads the written data back. */
static void write_all(struct side *side, size_t len, size_t pieces,
		      size_t remote_pieces, unsigned seed)
{
	ct_fill(side->memory.data, len, seed);
	access_all(side, CT_WRITEMSG, len, pieces, remote_pieces);
	read_all(side, len, remote_pieces, pieces, seed);
}

/* Skips the test if the system does not permit this process to access the
 * memory of the child. */
static void need_permission(const struct ct_child *child)
{
	static long word;
	struct iovec iov = { .iov_base = &word, .iov_len = sizeof(word) };

	if (process_vm_readv(child->pid, &iov, 1, &iov, 1, 0) != sizeof(word))
		SKIP("may not read the memory of another process");
}

static void begin(struct side *side, struct ct_child *child)
{
	char word;

	ct_own_network();
	*child = ct_spawn(owner);
	if (plan.is_copied)
		need_permission(child);
	ct_begin(child);
	stay_with_socket();
	limit("FI_TCP_LOCAL_MESSAGE_SIZE", plan.reads_nothing);
	memset(side, 0, sizeof(*side));
	open_side(side, child->fd, false);
	ct_hear(child->fd, &word, 1);
}

/* The two part once neither has anything to do. */
static void end(struct side *side, struct ct_child *child)
{
	char word;

	ct_tell(child->fd, "q", 1);
	ct_hear(child->fd, &word, 1);
	close_side(side);
	ct_tell(child->fd, "x", 1);
	ct_join(child);
}

/* Whether reads come to bypass the network: the two have to prove their
 * identity first. */
static bool is_bypassed(struct side *side)
{
	for (int i = 0; i < 20; i++) {
		uint64_t before = passed();

		read_all(side, ROOM, 1, 1, 1);
		if (passed() - before < ROOM / 4)
			return true;
	}
	return false;
}

/* Has the other process write, too. */
static void be_written(struct side *side, struct ct_child *child)
{
	char word;

	ct_tell(child->fd, "w", 1);
	while (recv(child->fd, &word, 1, MSG_DONTWAIT) != 1)
		ct_pull(&side->peer.rx);
}

static void copied_large(void)
{
	struct ct_child child;
	struct side side;
	uint64_t before;
	size_t local, remote;

	plan.is_copied = true;
	begin(&side, &child);
	CHECK(is_bypassed(&side), "reads");
	local = side.peer.info->tx_attr->iov_limit;
	remote = side.peer.info->tx_attr->rma_iov_limit;
	be_written(&side, &child);
	before = passed();
	for (size_t i = 1; i <= local; i++)
		for (size_t j = 1; j <= remote; j++) {
			read_all(&side, 300007, i, j, 1);
			read_all(&side, ROOM, i, j, 1);
		}
	for (unsigned seed = 2; seed < 20; seed++)
		write_all(&side, ROOM - seed, 1 + seed % local,
			  1 + seed % remote, seed);
	CHECK(passed() - before < ROOM, "writes");
	/* Small ones among the rest. */
	for (unsigned seed = 20; seed < 40; seed++) {
		if (seed % 8 == 0)
			be_written(&side, &child);
		write_all(&side, ROOM, 1, 1, seed);
		write_all(&side, 1000, 1, 1, seed + 100);
		write_all(&side, 100000, 1, 1, seed + 200);
	}
	end(&side, &child);
}

/* Small transfers bypass the network, too. */
static void shared(bool is_copied)
{
	struct ct_child child;
	uint64_t before;
	struct side side;

	plan.is_copied = is_copied;
	begin(&side, &child);
	CHECK(is_bypassed(&side), "reads");
	before = passed();
	for (unsigned seed = 2; seed < 10; seed++) {
		write_all(&side, ROOM, 1, 1, seed);
		write_all(&side, 100000, 1, 1, seed + 100);
		for (int i = 0; i < 1000; i++)
			write_all(&side, 1000, 1, 1, seed + 200);
	}
	CHECK(passed() - before < ROOM, "writes");
	end(&side, &child);
}

static void copied(void)
{
	shared(true);
}

/* Neither copies from the other, so everything goes through the shared memory.
 */
static void passed_on(void)
{
	plan.reads_nothing = true;
	shared(false);
}

static void by_network(void)
{
	struct ct_child child;
	struct side side;

	begin(&side, &child);
	CHECK(!is_bypassed(&side), "reads");
	for (unsigned seed = 2; seed < 10; seed++) {
		uint64_t before = passed();

		write_all(&side, ROOM, 1, 1, seed);
		REQUIRE(passed() - before >= 2 * ROOM);
	}
	end(&side, &child);
}

/* They share no memory, either. */
static void another_user(void)
{
	if (geteuid())
		SKIP("only root can be two users");
	plan.other_user = true;
	by_network();
}

static void refused_here(void)
{
	plan.reads_nothing = plan.by_socket = true;
	by_network();
}

static void refused_there(void)
{
	plan.offers_nothing = plan.by_socket = true;
	by_network();
}

static void by_socket(void)
{
	plan.by_socket = true;
	by_network();
}

static const struct ct_test tests[] = {
	{ "copied", copied, CT_BOTH },
	{ "copied-large", copied_large, CT_BOTH },
	{ "passed-on", passed_on, CT_BOTH },
	{ "another-user", another_user, CT_BOTH },
	{ "refused-here", refused_here, CT_BOTH },
	{ "refused-there", refused_there, CT_BOTH },
	{ "by-socket", by_socket, CT_BOTH },
};

CT_MAIN(tests)
