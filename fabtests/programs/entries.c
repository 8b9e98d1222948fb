/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The form of the entries of fi_getinfo, and whether endpoints have their
 * properties; the entries are those of the C library's providers of the same
 * names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

static char tx_context;

static bool is_named(const char *provider)
{
	return ct_opt.provider && strstr(ct_opt.provider, provider);
}

static struct fi_info *ask(struct fi_info *hints)
{
	struct fi_info *found = NULL;

	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &found));
	REQUIRE(found);
	return found;
}

/* Connections without tags are listed first: some programs skip entries that
 * offer more than they know. A request for tags gets nothing else. */
static void tags_last(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *hints = ct_hints(&spec), *found;
	bool with_tags = false;

	hints->caps = 0;
	found = ask(hints);
	CHECK(!(found->caps & FI_TAGGED) && !(found->tx_attr->caps & FI_TAGGED) &&
	      !(found->rx_attr->caps & FI_TAGGED), "first");
	for (struct fi_info *i = found; i; i = i->next) {
		if (i->caps & FI_TAGGED)
			with_tags = true;
	}
	CHECK(with_tags, "later");
	fi_freeinfo(found);
	hints->caps = FI_TAGGED;
	found = ask(hints);
	for (struct fi_info *i = found; i; i = i->next)
		REQUIRE(i->caps & FI_TAGGED);
	CHECK(true, "asked-for");
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* Entries that differ in no requested attribute are listed once. */
static void no_twins(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct fi_info *hints = ct_hints(&spec), *found = ask(hints);
	size_t twins = 0;

	for (struct fi_info *i = found; i; i = i->next) {
		char *one = strdup(fi_tostr(i, FI_TYPE_INFO));

		for (struct fi_info *j = i->next; j; j = j->next)
			twins += !strcmp(one, fi_tostr(j, FI_TYPE_INFO));
		free(one);
	}
	CHECK(!twins, "none");
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* The first remote byte of a region is at its address if the mode says so, and
 * at 0 otherwise; shm sets the mode for applications that support it. */
static void virtual_addresses(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory from, to;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	if (is_named("shm"))
		CHECK(ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR, "kept");
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &from, 4096, FI_WRITE);
	ct_memory_open(&pair.b, &to, 4096, FI_REMOTE_WRITE);
	ct_fill(from.data, 4096, 3);
	POST(&pair.a, fi_write(pair.a.ep, from.data, 4096, from.desc, pair.a.to,
			       ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR ? (uintptr_t)to.data : 0,
			       to.key, &tx_context));
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	CHECK(ct_holds(to.data, 4096, 3), "written");
	ct_memory_close(&from);
	ct_memory_close(&to);
	ct_close_pair(&pair);
}

/* If there are no domain attributes, shm has virtual addresses, too. */
static void without_hints(void)
{
	struct fi_info *hints = fi_allocinfo(), *found;

	if (!is_named("shm"))
		SKIP("about shm");
	hints->fabric_attr->prov_name = strdup(ct_opt.provider);
	free(hints->domain_attr);
	hints->domain_attr = NULL;
	found = ask(hints);
	CHECK(found->domain_attr->mr_mode == FI_MR_VIRT_ADDR, "mr-mode");
	CHECK(found->dest_addr && found->dest_addrlen == found->src_addrlen &&
	      !memcmp(found->dest_addr, found->src_addr, found->src_addrlen), "dest-addr");
	fi_freeinfo(found);
	hints->domain_attr = calloc(1, sizeof(*hints->domain_attr));
	found = ask(hints);
	CHECK(!found->domain_attr->mr_mode, "not-asked-for");
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* When a multi-receive buffer is released, unless the program sets the limit.
 */
static void least_room(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	size_t room = 0, size = sizeof(room);

	ct_open_single(&peer, &spec);
	OK(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &room, &size));
	CHECK(room == (is_named("shm") ? 4096 : is_named("ucx") ? 0 : 16384), "%zu", room);
	ct_close_peer(&peer);
}

static size_t wanted_inject;

static void want_inject(struct fi_info *hints)
{
	hints->tx_attr->inject_size = wanted_inject;
}

/* The largest size that any entry has, by asking. */
static size_t largest_inject(void)
{
	for (size_t size = 1 << 20; size; size /= 2) {
		struct ct_spec spec = { 0 };
		struct fi_info *hints = ct_hints(&spec), *found = NULL;
		int ret;

		hints->tx_attr->inject_size = size;
		ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
				 ct_opt.source ? FI_SOURCE : 0, hints, &found);
		REQUIRE(ret || found->tx_attr->inject_size >= size);
		fi_freeinfo(found);
		fi_freeinfo(hints);
		if (!ret)
			return size;
	}
	return 0;
}

/* Messages up to the limit can be injected: the buffer may be reused
 * immediately. */
static void longest_inject(void)
{
	static const enum ct_send_form forms[] = { CT_INJECT, CT_INJECTDATA, CT_SENDMSG_INJECT };
	static const enum ct_rma_form writes[] = { CT_INJECT_WRITE, CT_INJECT_WRITEDATA,
						   CT_WRITEMSG_INJECT };
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED | FI_RMA, .hint = want_inject };
	struct ct_memory from, to;
	struct ct_pair pair;
	size_t size = wanted_inject = largest_inject();

	REQUIRE(size);
	if (is_named("ofi_rxm"))
		CHECK(size >= 16384, "16-kib");
	ct_open_pair(&pair, &spec);
	REQUIRE(pair.a.info->tx_attr->inject_size >= size);
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &from, size, FI_SEND | FI_WRITE);
	ct_memory_open(&pair.b, &to, size, FI_RECV | FI_REMOTE_WRITE);
	for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++) {
		enum ct_send_form form = forms[i / 2];
		struct ct_message in = { .buf = to.data, .len = size, .desc = to.desc, .tag = 5,
					 .tagged = i % 2, .from = FI_ADDR_UNSPEC,
					 .context = &tx_context };
		struct ct_message out = { .buf = from.data, .len = size, .desc = from.desc,
					  .tag = 5, .tagged = i % 2, .data = 7,
					  .context = &tx_context };

		if (!ct_send_offered(&pair.a, form))
			continue;
		memset(to.data, 0, size);
		ct_fill(from.data, size, i + 1);
		POST(&pair.b, ct_recv(&pair.b, CT_RECV, &in));
		POST(&pair.a, ct_send(&pair.a, form, &out));
		memset(from.data, 0xee, size);
		ct_done(&pair.b, &pair.b.rx, &tx_context);
		if (ct_send_completes(form))
			ct_done(&pair.a, &pair.a.tx, &tx_context);
		CHECK(ct_holds(to.data, size, i + 1), "%s-%s", ct_send_name(form),
		      i % 2 ? "tagged" : "plain");
	}
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		struct ct_rma rma = { .buf = from.data, .len = size, .desc = from.desc,
				      .addr = to.addr, .key = to.key, .data = 7,
				      .context = &tx_context };

		if (!ct_rma_offered(&pair.a, writes[i]))
			continue;
		memset(to.data, 0, size);
		ct_fill(from.data, size, i + 9);
		POST(&pair.a, ct_rma(&pair.a, writes[i], &rma));
		memset(from.data, 0xee, size);
		UNTIL(&pair.b, ct_holds(to.data, size, i + 9));
		CHECK(true, "%s", ct_rma_name(writes[i]));
	}
	ct_memory_close(&from);
	ct_memory_close(&to);
	ct_close_pair(&pair);
}

/* The text that was written to standard error in the meantime. */
static FILE *catch_log(void)
{
	FILE *log = tmpfile();

	REQUIRE(log);
	setenv("FI_LOG_LEVEL", "debug", 1);
	REQUIRE(dup2(fileno(log), STDERR_FILENO) >= 0);
	return log;
}

static size_t lines_with(FILE *log, const char *text)
{
	char *line = NULL;
	size_t size = 0, count = 0;

	rewind(log);
	while (getline(&line, &size, log) > 0)
		count += strstr(line, text) != NULL;
	free(line);
	return count;
}

/* FI_COMMIT_COMPLETE: the target writes its caches back before it acknowledges
 * a write. That has no effect that a program could observe, but the provider
 * logs it. */
static void commit(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA | FI_RMA_PMEM };
	static const size_t sizes[] = { 1, 64, 5000, 1 << 20 };
	struct ct_memory from, to;
	struct ct_pair pair;
	FILE *log = catch_log();
	const char *text = "go to the persistence domain";
	size_t expected = 0;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &from, 1 << 20, FI_WRITE);
	ct_memory_open(&pair.b, &to, 1 << 20, FI_REMOTE_WRITE);
	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i / 2];
		struct ct_rma rma = { .buf = from.data, .len = size, .desc = from.desc,
				      .addr = to.addr, .key = to.key, .data = 7,
				      .flags = FI_COMPLETION | FI_COMMIT_COMPLETE,
				      .context = &tx_context };
		enum ct_rma_form form = i % 2 ? CT_WRITEMSG_DATA : CT_WRITEMSG;

		ct_fill(from.data, size, i + 1);
		POST(&pair.a, ct_rma(&pair.a, form, &rma));
		ct_done(&pair.a, &pair.a.tx, &tx_context);
		expected++;
		CHECK(ct_holds(to.data, size, i + 1), "%s-%zu", ct_rma_name(form), size);
		CHECK(lines_with(log, text) == expected, "%s-%zu-persistent", ct_rma_name(form),
		      size);
	}
	/* Other writes do not have that cost. */
	POST(&pair.a, fi_write(pair.a.ep, from.data, 64, from.desc, pair.a.to, to.addr, to.key,
			       &tx_context));
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	CHECK(lines_with(log, text) == expected, "plain-write");
	ct_memory_close(&from);
	ct_memory_close(&to);
	ct_close_pair(&pair);
	fclose(log);
}

static const struct ct_test tests[] = {
	{ "tags-last", tags_last, CT_MSG },
	{ "no-twins", no_twins, CT_BOTH },
	{ "virtual-addresses", virtual_addresses, CT_BOTH },
	{ "without-hints", without_hints, CT_RDM },
	{ "least-room", least_room, CT_RDM },
	{ "longest-inject", longest_inject, CT_BOTH },
	{ "commit", commit, CT_BOTH },
};

CT_MAIN(tests)
