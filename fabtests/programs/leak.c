/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A thousand times open, transfer, close: descriptors and memory stay put. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "process.h"
#include "transfer.h"
#include "wait.h"

#define CYCLES 1000
#define WARM_UP 50		/* caches and pools fill in the first cycles */
#define ALLOWED_KIB 1024	/* growth over all cycles: allocator noise */

static int shared_files(void)
{
	DIR *dir = opendir("/dev/shm");
	int count = 0;
	struct dirent *entry;

	if (!dir)
		return 0;
	/* Only those of this process: others appear and disappear in the
	 * meantime. */
	while ((entry = readdir(dir))) {
		char pid[32];

		snprintf(pid, sizeof(pid), "%d", (int)getpid());
		count += strstr(entry->d_name, pid) != NULL;
	}
	closedir(dir);
	return count;
}

/* Memory checkers keep freed memory, and check for leaks themselves. */
static bool under_memory_checker(void)
{
#ifdef __SANITIZE_ADDRESS__
	return true;
#else
	const char *preloaded = getenv("LD_PRELOAD");

	return preloaded && strstr(preloaded, "vgpreload");
#endif
}

/* A leak grows all the time. Memory that the allocator keeps grows in steps,
 * at some time: the least growth of several periods counts. */
static void cycles(void (*cycle)(int round), int count)
{
	enum { PARTS = 4 };
	int descriptors = 0, files = 0;
	long resident = 0, least = LONG_MAX;
	int warm_up = count > 2 * WARM_UP ? WARM_UP : count / 2;
	int part = (count - warm_up) / PARTS;

	for (int i = 0; i < count; i++) {
		if (i == warm_up) {
			descriptors = ct_descriptors();
			resident = ct_resident() / 1024;
			files = shared_files();
		}
		cycle(i);
		if (part && i >= warm_up && (i + 1 - warm_up) % part == 0) {
			long now = ct_resident() / 1024;

			if (now - resident < least)
				least = now - resident;
			resident = now;
		}
	}
	/* A thread of the library may be a moment late in freeing its
	 * resources. */
	for (int i = 0; i < 100 && ct_descriptors() > descriptors; i++)
		usleep(10000);
	CHECK(ct_descriptors() <= descriptors, "descriptors");
	CHECK(shared_files() == files, "shared-memory");
	if (under_memory_checker() || !part)
		return;
	CHECK(least * PARTS <= ALLOWED_KIB, "memory");
	if (least * PARTS > ALLOWED_KIB)
		fprintf(stderr, "grew by %ld KiB and more in each %d cycles\n",
			least, part);
}

/* Everything opened, one message of each size class and one access. */
static void whole(int round)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory out, in;
	struct ct_pair pair;
	const size_t sizes[] = { 8, 5000, 200000 };

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, 200000, FI_SEND | FI_WRITE);
	ct_memory_open(&pair.b, &in, 200000, FI_RECV | FI_REMOTE_WRITE);
	for (int i = 0; i < 3; i++) {
		ct_fill(out.data, sizes[i], (unsigned)round);
		POST(&pair.b, fi_recv(pair.b.ep, in.data, sizes[i], in.desc,
				      FI_ADDR_UNSPEC, &rx_context));
		POST(&pair.a, fi_send(pair.a.ep, out.data, sizes[i], out.desc,
				      pair.a.to, &tx_context));
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		ct_done(&pair.b, &pair.b.rx, &rx_context);
		REQUIRE(ct_holds(in.data, sizes[i], (unsigned)round));
	}
	POST(&pair.a, fi_write(pair.a.ep, out.data, 5000, out.desc, pair.a.to,
			       in.addr, in.key, &tx_context));
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void open_transfer_close(void)
{
	cycles(whole, ct_times(CYCLES));
}

/* Closed with operations in progress: queued messages are freed with the
 * endpoint. */
static void abandoned(int round)
{
	static struct fi_context2 contexts[16];
	struct ct_spec spec = { .caps = FI_MSG };
	struct ct_memory out, in;
	struct ct_pair pair;

	(void)round;
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &out, 100000, FI_SEND);
	ct_memory_open(&pair.b, &in, 100000, FI_RECV);
	for (int i = 0; i < 4; i++) {
		POST(&pair.b, fi_recv(pair.b.ep, in.data, 100, in.desc,
				      FI_ADDR_UNSPEC, &contexts[i]));
		POST(&pair.a, fi_send(pair.a.ep, out.data, i % 2 ? 100000 : 50,
				      out.desc, pair.a.to, &contexts[8 + i]));
	}
	for (int i = 0; i < round % 10; i++)
		ct_nudge(&pair.b);
	OK(fi_close(&pair.a.ep->fid));
	pair.a.ep = NULL;
	OK(fi_close(&pair.b.ep->fid));
	pair.b.ep = NULL;
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void close_with_work(void)
{
	cycles(abandoned, ct_times(CYCLES / 2));
}

static void question(int round)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec), *copy = fi_dupinfo(info);

	(void)round;
	fi_tostr(info, FI_TYPE_INFO);
	fi_freeinfo(copy);
	fi_freeinfo(info);
}

static void questions(void)
{
	cycles(question, ct_times(CYCLES));
}

static void region(int round)
{
	static struct ct_peer peer;
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory memory;

	(void)round;
	if (!peer.domain)
		ct_open_single(&peer, &spec);
	ct_memory_open(&peer, &memory, 100, FI_REMOTE_READ);
	ct_memory_close(&memory);
}

static void regions(void)
{
	cycles(region, ct_times(CYCLES * 10));
}

static void address(int round)
{
	static struct ct_peer peer;
	static unsigned char name[CT_NAME];
	struct ct_spec spec = { 0 };
	fi_addr_t addr;

	(void)round;
	if (!peer.domain) {
		ct_open_single(&peer, &spec);
		ct_name(&peer.ep->fid, name, sizeof(name));
	}
	addr = ct_insert(&peer, name);
	OK(fi_av_remove(peer.av, &addr, 1, 0));
}

static void addresses(void)
{
	cycles(address, ct_times(CYCLES * 10));
}

/* Connections that are refused or rejected leave nothing allocated. */
static void rejection(int round)
{
	static struct ct_pair pair;
	static unsigned char name[CT_NAME];
	struct ct_spec spec = { 0 };
	struct ct_event request, event;

	(void)round;
	if (!pair.pep) {
		struct fi_info *info = ct_getinfo(&spec);

		ct_open_domain(&pair.a, &spec, info, NULL, NULL);
		ct_open_domain(&pair.b, &spec, fi_dupinfo(info), pair.a.fabric,
			       NULL);
		pair.a.partner = &pair.b;
		pair.b.partner = &pair.a;
		pair.pep = ct_listen(&pair.a);
		ct_name(&pair.pep->fid, name, sizeof(name));
	}
	ct_open_ep(&pair.b, pair.b.info);
	OK(fi_connect(pair.b.ep, name, "data", 4));
	ct_wait_request(&pair.a, &request);
	OK(fi_reject(pair.pep, request.info->handle, "no", 2));
	fi_freeinfo(request.info);
	event = ct_any_event(&pair.b);
	REQUIRE(event.failed);
	OK(fi_close(&pair.b.ep->fid));
	pair.b.ep = NULL;
}

static void rejections(void)
{
	cycles(rejection, ct_times(CYCLES));
}

static const struct ct_test tests[] = {
	{ "open-transfer-close", open_transfer_close, CT_BOTH | CT_SLOW },
	{ "close-with-work", close_with_work, CT_BOTH | CT_SLOW },
	{ "questions", questions, CT_BOTH | CT_SLOW },
	{ "regions", regions, CT_BOTH },
	{ "addresses", addresses, CT_RDM },
	{ "rejections", rejections, CT_MSG | CT_SLOW },
};

CT_MAIN(tests)
