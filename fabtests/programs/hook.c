/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Hooks over the provider, fi_hook(7). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "everything.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

#define ALL "noop;trace;perf;profile;monitor;debug"

/* Where the monitor hook's files go in this process, and then what it logs. */
static char folder[] = "/tmp/ct-hook-XXXXXX";
static char *logged;

static void set_up(const char *hooks)
{
	REQUIRE(mkdtemp(folder));
	setenv("FI_HOOK", hooks, 1);
	setenv("FI_OFI_HOOK_MONITOR_BASEPATH", folder, 1);
	setenv("FI_OFI_HOOK_MONITOR_TICK_MAX", "1", 1);
}

/* The log goes to a file from here on. */
static void log_to_file(const char *level)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/log", folder);
	setenv("FI_LOG_LEVEL", level, 1);
	REQUIRE(freopen(path, "w", stderr));
}

static void read_log(void)
{
	char path[64];
	size_t size = 64 << 20, len;
	FILE *file;

	fflush(stderr);
	snprintf(path, sizeof(path), "%s/log", folder);
	REQUIRE((file = fopen(path, "r")));
	REQUIRE((logged = malloc(size)));
	len = fread(logged, 1, size - 1, file);
	logged[len] = 0;
	fclose(file);
}

/* Whether a file is the provider's own, and not that of one below it. */
static bool is_of_provider(const char *name)
{
	const char *provider = ct_opt.provider ? ct_opt.provider : "";
	const char *last = strrchr(provider, ';');
	size_t len = strlen(name), of_provider;

	provider = last ? last + 1 : provider;
	of_provider = strlen(provider);
	return len >= of_provider && !strcmp(name + len - of_provider, provider);
}

/* The provider's file below a path, whatever is between. */
static bool find_file(const char *path, char *found, size_t size)
{
	struct dirent *entry;
	bool done = false;
	DIR *dir = opendir(path);

	REQUIRE(dir);
	while (!done && (entry = readdir(dir))) {
		char inner[512];
		struct stat st;

		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "log"))
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		REQUIRE(!stat(inner, &st));
		if (S_ISDIR(st.st_mode)) {
			done = find_file(inner, found, size);
		} else if (is_of_provider(entry->d_name)) {
			snprintf(found, size, "%s", inner);
			done = true;
		}
	}
	closedir(dir);
	return done;
}

static void tear_down(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	REQUIRE(!system(command));
	free(logged);
}

/* Messages of one length, one at a time. */
static void pass(struct ct_pair *pair, int count, size_t len)
{
	static struct fi_context2 tx, rx;
	static char out[8192], in[8192];

	for (int i = 0; i < count; i++) {
		struct ct_message send = {
			.buf = out, .len = len, .context = &tx,
			.from = FI_ADDR_UNSPEC,
		}, recv = {
			.buf = in, .len = sizeof(in), .context = &rx,
			.from = FI_ADDR_UNSPEC,
		};

		OK(ct_recv(&pair->b, CT_RECV, &recv));
		OK(ct_send(&pair->a, CT_SEND, &send));
		ct_done(&pair->b, &pair->b.rx, &rx);
		ct_done(&pair->a, &pair->a.tx, &tx);
	}
}

/* Every call of the interface, with all hooks. */
static void everything(void)
{
	struct ct_spec spec;

	set_up(ALL);
	log_to_file("trace");
	/* This calls the library, which reads its environment then. */
	spec = ct_everything_spec(FI_THREAD_SAFE, FI_PROGRESS_UNSPEC);
	ct_everything(&spec, (struct ct_everything){ .waits = true });
	read_log();
	CHECK(strstr(logged, "PERF: "), "perf");
	CHECK(strstr(logged, "XFER_API"), "profile");
	tear_down();
}

/* The file of the monitor hook: 42 functions with 9 ranges of sizes, the counts
 * and then the sums, and a byte of flags. */
struct counters {
	struct {
		uint64_t count[9], sum[9];
	} of[42];
	uint8_t flags;
};

enum { RECV = 0, SEND = 6, CQ_TAGGED_RX = 41, REQUEST = 1 };

static void counters(void)
{
	struct ct_spec spec = { .one_domain = true };
	struct counters read;
	struct ct_pair pair;
	char path[512];
	FILE *file;

	set_up("monitor");
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	REQUIRE(find_file(folder, path, sizeof(path)));
	REQUIRE((file = fopen(path, "r+")));
	setvbuf(file, NULL, _IONBF, 0);
	for (int sample = 0; sample < 2; sample++) {
		pass(&pair, 5, 100);
		pass(&pair, 3, 8000);
		REQUIRE(!fseek(file, offsetof(struct counters, flags), SEEK_SET));
		REQUIRE(fputc(REQUEST, file) == REQUEST);
		/* The answer comes with the next call that is counted. */
		pass(&pair, 1, 1);
		memset(&read, 0, sizeof(read));
		REQUIRE(!fseek(file, 0, SEEK_SET));
		REQUIRE(fread(&read, offsetof(struct counters, flags) + 1, 1,
			      file) == 1);
		CHECK(!(read.flags & REQUEST), "answered");
	}
	/* Of the second sample, which begins after the first one's answer. */
	CHECK(read.of[SEND].count[1] == 5 && read.of[SEND].sum[1] == 500,
	      "sends-of-100");
	CHECK(read.of[SEND].count[4] == 3 && read.of[SEND].sum[4] == 24000,
	      "sends-of-8000");
	CHECK(read.of[RECV].count[0] >= 8 && !read.of[RECV].sum[0], "receives");
	CHECK(read.of[CQ_TAGGED_RX].count[4] == 3 &&
	      read.of[CQ_TAGGED_RX].sum[4] == 24000, "completions");
	fclose(file);
	ct_close_pair(&pair);
	CHECK(!find_file(folder, path, sizeof(path)), "removed");
	tear_down();
}

/* The text of trace, perf and profile. */
static void reports(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	set_up("profile;perf;trace");
	log_to_file("trace");
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	pass(&pair, 4, 100);
	ct_close_pair(&pair);
	read_log();
	CHECK(strstr(logged, "fi_send(0x") && strstr(logged, "len=100,") &&
	      strstr(logged, "completion: context=0x"), "trace");
	CHECK(strstr(logged, "perf_send "), "perf");
	CHECK(strstr(logged, "64_512"), "profile");
	tear_down();
}

/* Nothing is wrong with what the other programs do. */
static void no_mistakes(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	set_up("debug");
	log_to_file("warn");
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	pass(&pair, 20, 100);
	ct_close_pair(&pair);
	read_log();
	CHECK(!strstr(logged, "debug hook"), "nothing");
	tear_down();
}

static void mistakes(void)
{
	static struct fi_context2 tx;
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	struct fid_ep *ep;
	ssize_t ret;

	set_up("debug");
	log_to_file("warn");
	ct_open_single(&peer, &spec);
	EXPECT(fi_close(&peer.fabric->fid), -FI_EBUSY);
	ep = peer.ep;
	if (ct_opt.type == FI_EP_RDM) {
		/* To itself, and not received. */
		char name[256];

		ct_name(&ep->fid, name, sizeof(name));
		peer.to = ct_insert(&peer, name);
		ret = fi_send(ep, &tx, sizeof(tx), NULL, peer.to, &tx);
		CHECK(!ret || ret == -FI_EAGAIN, "send");
	}
	OK(fi_close(&ep->fid));
	peer.ep = NULL;
	ret = fi_send(ep, NULL, 0, NULL, 0, NULL);
	CHECK(ret < 0, "refused");
	ct_close_peer(&peer);
	read_log();
	CHECK(strstr(logged, "open are "), "open-objects");
	CHECK(strstr(logged, "has been closed"), "use-after-close");
	tear_down();
}

static const struct ct_test tests[] = {
	{ "everything", everything, CT_BOTH | CT_SLOW },
	{ "counters", counters, CT_BOTH },
	{ "reports", reports, CT_BOTH },
	{ "no-mistakes", no_mistakes, CT_BOTH },
	{ "mistakes", mistakes, CT_BOTH },
};

CT_MAIN(tests)
