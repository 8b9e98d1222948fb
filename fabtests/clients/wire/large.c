/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "large.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "side.h"
#include "transfer.h"
#include "wait.h"

#define LENGTH ((2UL << 30) + 4099)

/* The server's memory repeats after this many bytes, the client's after
 * another number. The contents of the end of the client's memory are thus
 * correct only if everything before has arrived, and neither needs 2 GiB. */
#define SERVER_PERIOD (29UL << 20)
#define CLIENT_PERIOD (32UL << 20)

static size_t mapped(size_t period)
{
	return (LENGTH + period - 1) / period * period;
}

/* The same `period` bytes again and again, at least LENGTH in all. */
static unsigned char *repeating(size_t period)
{
	int fd = memfd_create("repeating", MFD_CLOEXEC);
	unsigned char *data = mmap(NULL, mapped(period), PROT_NONE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	REQUIRE(fd >= 0 && data != MAP_FAILED);
	REQUIRE(!ftruncate(fd, (off_t) period));
	for (size_t at = 0; at < mapped(period); at += period)
		REQUIRE(mmap(data + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			     fd, 0) != MAP_FAILED);
	close(fd);
	return data;
}

/* True if the last bytes that the client's memory has room for are those of
 * the server. */
static bool holds_the_end(const unsigned char *data, const unsigned char *pattern)
{
	for (size_t at = LENGTH - CLIENT_PERIOD; at < LENGTH;) {
		size_t left = SERVER_PERIOD - at % SERVER_PERIOD;
		size_t piece = left < LENGTH - at ? left : LENGTH - at;

		if (memcmp(data + at, pattern + at % SERVER_PERIOD, piece))
			return false;
		at += piece;
	}
	return true;
}

static void check_and_clear(unsigned char *data, const unsigned char *pattern)
{
	REQUIRE(holds_the_end(data, pattern));
	memset(data, 0xee, CLIENT_PERIOD);
}

/* Sends everything, or an empty message that reports the end. */
static void send_from(struct ct_peer *peer, const struct ct_memory *memory, size_t len)
{
	static struct fi_context2 context;
	struct ct_message tx = {
		.buf = memory->data, .len = len, .desc = memory->desc, .context = &context,
	};

	POST(peer, ct_send(peer, CT_SEND, &tx));
	ct_done_large(peer, &peer->tx, &context);
}

static void serve(struct side *side, const struct ct_memory *memory, uint64_t addr, uint64_t key)
{
	static struct fi_context2 context;
	struct ct_peer *peer = &side->peer;
	struct ct_rma rma = {
		.buf = memory->data, .len = LENGTH, .desc = memory->desc, .addr = addr, .key = key,
		.context = &context,
	};

	side_sync(side);
	send_from(peer, memory, LENGTH);
	side_sync(side);
	POST(peer, ct_rma(peer, CT_WRITE, &rma));
	ct_done_large(peer, &peer->tx, &context);
	send_from(peer, memory, 0);
	side_sync(side);
}

static void take(struct side *side, const struct ct_memory *memory, uint64_t addr, uint64_t key,
		 const unsigned char *pattern)
{
	static struct fi_context2 received, announced, fetched;
	struct ct_peer *peer = &side->peer;
	struct ct_message rx = {
		.buf = memory->data, .len = LENGTH, .desc = memory->desc,
		.from = FI_ADDR_UNSPEC, .context = &received,
	}, done = { .from = FI_ADDR_UNSPEC, .context = &announced };
	struct ct_rma rma = {
		.buf = memory->data, .len = LENGTH, .desc = memory->desc, .addr = addr, .key = key,
		.context = &fetched,
	};

	POST(peer, ct_recv(peer, CT_RECV, &rx));
	POST(peer, ct_recv(peer, CT_RECV, &done));
	side_sync(side);
	ct_done_large(peer, &peer->rx, &received);
	check_and_clear(memory->data, pattern);
	side_sync(side);
	ct_done_large(peer, &peer->rx, &announced);
	check_and_clear(memory->data, pattern);
	POST(peer, ct_rma(peer, CT_READ, &rma));
	ct_done_large(peer, &peer->tx, &fetched);
	check_and_clear(memory->data, pattern);
	side_sync(side);
}

void beyond_2_gib(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct { uint64_t addr, key, limit; } mine, theirs;
	struct ct_memory memory;
	unsigned char *data, *pattern = malloc(SERVER_PERIOD);
	struct side side;

	REQUIRE(pattern);
	side_open(&side, "beyond_2_gib", &spec);
	ct_fill(pattern, SERVER_PERIOD, 1);
	data = repeating(side.server ? SERVER_PERIOD : CLIENT_PERIOD);
	if (side.server)
		memcpy(data, pattern, SERVER_PERIOD);
	else
		memset(data, 0xee, CLIENT_PERIOD);
	ct_register(&side.peer, &memory, data, LENGTH,
		    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
	mine.addr = memory.addr;
	mine.key = memory.key;
	mine.limit = side.peer.info->ep_attr->max_msg_size;
	side_swap(&side, &mine, &theirs, sizeof(mine));
	REQUIRE(mine.limit >= LENGTH && theirs.limit >= LENGTH);
	if (side.server)
		serve(&side, &memory, theirs.addr, theirs.key);
	else
		take(&side, &memory, theirs.addr, theirs.key, pattern);
	OK(fi_close(&memory.mr->fid));
	side_close(&side);
}
