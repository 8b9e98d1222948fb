/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An endpoint whose queues and counters nobody reads, under manual progress:
 * the program makes progress by reading those of another endpoint of the domain.
 */
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define SHORT 8
#define LONG (1 << 20)

/* Two endpoints of one domain, and a partner in a domain of its own. */
struct trio {
	struct ct_peer silent, read, other;
	struct fid_stx *stx;
};

static struct fid_stx *to_bind;
static enum fi_threading threading = FI_THREAD_SAFE;

static void bind_shared(struct fid_ep *ep)
{
	OK(fi_ep_bind(ep, &to_bind->fid, 0));
}

static void share(struct fi_info *info)
{
	info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
}

static void meet(struct ct_peer *from, struct ct_peer *to)
{
	unsigned char name[CT_NAME];

	ct_name(&to->ep->fid, name, sizeof(name));
	from->to = ct_insert(from, name);
}

static void setup(struct trio *trio, bool shared)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .threading = threading,
		.progress = FI_PROGRESS_MANUAL,
	};
	struct ct_peer *read = &trio->read, *silent = &trio->silent;

	memset(trio, 0, sizeof(*trio));
	ct_open_single(&trio->other, &spec);
	if (shared) {
		spec.change = share;
		spec.prepare = bind_shared;
	}
	ct_open_domain(read, &spec, ct_getinfo(&spec), NULL, NULL);
	if (shared) {
		OK(fi_stx_context(read->domain, NULL, &trio->stx, NULL));
		to_bind = trio->stx;
	}
	ct_open_ep(read, read->info);
	ct_open_domain(silent, &spec, fi_dupinfo(read->info), read->fabric,
		       read->domain);
	ct_open_ep(silent, silent->info);
	meet(silent, &trio->other);
	meet(&trio->other, silent);
	read->partner = &trio->other;
	trio->other.partner = read;
}

static void teardown(struct trio *trio)
{
	ct_close_peer(&trio->silent);
	OK(fi_close(&trio->read.ep->fid));
	trio->read.ep = NULL;
	if (trio->stx)
		OK(fi_close(&trio->stx->fid));
	ct_close_peer(&trio->read);
	ct_close_peer(&trio->other);
}

/* What the silent endpoint posts gets to the partner. */
static void message_leaves(bool shared, size_t len)
{
	struct ct_memory out, in;
	struct fi_context2 context[2];
	struct trio trio;

	setup(&trio, shared);
	ct_memory_open(&trio.silent, &out, len, FI_SEND);
	ct_memory_open(&trio.other, &in, len, FI_RECV);
	ct_fill(out.data, len, 1);
	POST(&trio.other, fi_recv(trio.other.ep, in.data, len, in.desc,
				  FI_ADDR_UNSPEC, &context[0]));
	POST(&trio.read, fi_send(trio.silent.ep, out.data, len, out.desc,
				 trio.silent.to, &context[1]));
	ct_done(&trio.other, &trio.other.rx, &context[0]);
	REQUIRE(ct_holds(in.data, len, 1));
	ct_memory_close(&out);
	ct_memory_close(&in);
	teardown(&trio);
}

static void put(struct trio *trio, struct ct_peer *driven, struct ct_peer *from,
		struct ct_peer *to, size_t len)
{
	struct ct_memory out, in;
	struct fi_context2 context;

	ct_memory_open(from, &out, len, FI_WRITE);
	ct_memory_open(to, &in, len, FI_REMOTE_WRITE);
	memset(out.data, 1, len);
	POST(driven, fi_write(from->ep, out.data, len, out.desc, from->to,
			      in.addr, in.key, &context));
	UNTIL(&trio->read, __atomic_load_n(&in.data[len - 1], __ATOMIC_ACQUIRE));
	if (from == &trio->other)
		ct_done(from, &from->tx, &context);
	ct_memory_close(&in);
	ct_memory_close(&out);
}

static void put_leaves(bool shared, size_t len)
{
	struct trio trio;

	setup(&trio, shared);
	put(&trio, &trio.read, &trio.silent, &trio.other, len);
	teardown(&trio);
}

static void put_arrives(bool shared, size_t len)
{
	struct trio trio;

	setup(&trio, shared);
	put(&trio, &trio.other, &trio.other, &trio.silent, len);
	teardown(&trio);
}

/* Its receives get their messages. */
static void message_arrives(bool shared, size_t len)
{
	struct ct_memory out, in;
	struct fi_context2 context[2];
	struct trio trio;

	setup(&trio, shared);
	ct_memory_open(&trio.other, &out, len, FI_SEND);
	ct_memory_open(&trio.silent, &in, len, FI_RECV);
	memset(out.data, 1, len);
	POST(&trio.read, fi_recv(trio.silent.ep, in.data, len, in.desc,
				 FI_ADDR_UNSPEC, &context[0]));
	POST(&trio.other, fi_send(trio.other.ep, out.data, len, out.desc,
				  trio.other.to, &context[1]));
	UNTIL(&trio.read, __atomic_load_n(&in.data[len - 1], __ATOMIC_ACQUIRE));
	ct_memory_close(&out);
	ct_memory_close(&in);
	teardown(&trio);
}

/* With FI_THREAD_COMPLETION, the C library's tcp sends what the silent endpoint
 * posts, and does not drive it otherwise. */
static void message_leaves_completion(void)
{
	threading = FI_THREAD_COMPLETION;
	message_leaves(false, SHORT);
	message_leaves(false, LONG);
}

static void put_leaves_completion(void)
{
	threading = FI_THREAD_COMPLETION;
	put_leaves(false, SHORT);
}

#define VARIANTS(what)							\
	static void what##_short(void) { what(false, SHORT); }		\
	static void what##_long(void) { what(false, LONG); }		\
	static void what##_short_shared(void) { what(true, SHORT); }	\
	static void what##_long_shared(void) { what(true, LONG); }

#define ROWS(what)							\
	{ #what "/short", what##_short, CT_RDM },			\
	{ #what "/long", what##_long, CT_RDM },				\
	{ #what "/short/shared", what##_short_shared, CT_RDM },		\
	{ #what "/long/shared", what##_long_shared, CT_RDM }

VARIANTS(message_leaves)
VARIANTS(put_leaves)
VARIANTS(put_arrives)
VARIANTS(message_arrives)

static const struct ct_test tests[] = {
	ROWS(message_leaves),
	ROWS(put_leaves),
	ROWS(put_arrives),
	ROWS(message_arrives),
	{ "message_leaves/completion", message_leaves_completion, CT_RDM },
	{ "put_leaves/completion", put_leaves_completion, CT_RDM },
};

CT_MAIN(tests)
