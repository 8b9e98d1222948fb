/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Receive queues shared between providers (fi_peer(3)): the program owns the
 * receives, and the provider finds them here. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/providers/fi_peer.h>

#include "check.h"
#include "connect.h"
#include "device.h"
#include "memory.h"
#include "pattern.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

#define ROOM (1 << 20)

static struct fi_context2 tx_context[8], rx_context[8];

/* A receive that waits, or a message that does. */
struct entry {
	struct fi_peer_rx_entry rx;	/* first */
	struct iovec iov;
	void *desc;
	bool tagged;
	struct entry *next;
};

struct owner {
	struct fid_peer_srx srx;
	struct fid_peer_cq cq;
	struct fid_cq *peer_cq;
	struct entry *posted, *unexpected;	/* oldest first */
	int live;				/* entries that the peer has */
	struct ct_completion got[16];
	int count;
};

static struct owner owner;

static struct entry *new_entry(void)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	REQUIRE(entry);
	entry->rx.srx = &owner.srx;
	entry->rx.iov = &entry->iov;
	entry->rx.desc = &entry->desc;
	return entry;
}

static void append(struct entry **list, struct entry *entry)
{
	while (*list)
		list = &(*list)->next;
	entry->next = NULL;
	*list = entry;
}

static struct entry *take(struct entry **list, bool tagged, uint64_t tag)
{
	for (; *list; list = &(*list)->next) {
		struct entry *found = *list;

		if (found->tagged == tagged && found->rx.tag == tag) {
			*list = found->next;
			return found;
		}
	}
	return NULL;
}

static int get(bool tagged, struct fi_peer_match_attr *attr,
	       struct fi_peer_rx_entry **out)
{
	struct entry *entry = take(&owner.posted, tagged, attr->tag);
	int ret = entry ? 0 : -FI_ENOENT;

	if (!entry) {
		entry = new_entry();
		entry->tagged = tagged;
		entry->rx.tag = attr->tag;
		entry->rx.flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
	}
	entry->rx.addr = attr->addr;
	entry->rx.msg_size = attr->msg_size;
	owner.live++;
	*out = &entry->rx;
	return ret;
}

static int get_msg(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
		   struct fi_peer_rx_entry **out)
{
	REQUIRE(srx == &owner.srx);
	attr->tag = 0;
	return get(false, attr, out);
}

static int get_tag(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
		   struct fi_peer_rx_entry **out)
{
	REQUIRE(srx == &owner.srx);
	return get(true, attr, out);
}

static int queue(struct fi_peer_rx_entry *rx)
{
	append(&owner.unexpected, (struct entry *)rx);
	return 0;
}

static void free_entry(struct fi_peer_rx_entry *rx)
{
	struct entry *entry = (struct entry *)rx, **list;

	for (list = &owner.unexpected; *list; list = &(*list)->next) {
		if (*list == entry) {
			*list = entry->next;
			break;
		}
	}
	owner.live--;
	free(entry);
}

static void foreach_unspec(struct fid_peer_srx *srx,
			   fi_addr_t (*get_addr)(struct fi_peer_rx_entry *))
{
	REQUIRE(srx == &owner.srx);
	for (struct entry *entry = owner.unexpected; entry; entry = entry->next)
		if (entry->rx.addr == FI_ADDR_UNSPEC)
			entry->rx.addr = get_addr(&entry->rx);
}

static struct fi_ops_srx_owner srx_ops = {
	.size = sizeof(srx_ops),
	.get_msg = get_msg,
	.get_tag = get_tag,
	.queue_msg = queue,
	.queue_tag = queue,
	.foreach_unspec_addr = foreach_unspec,
	.free_entry = free_entry,
};

static ssize_t cq_write(struct fid_peer_cq *cq, void *context, uint64_t flags,
			size_t len, void *buf, uint64_t data, uint64_t tag,
			fi_addr_t src)
{
	REQUIRE(cq == &owner.cq && owner.count < 16);
	owner.got[owner.count++] = (struct ct_completion) {
		.context = context, .flags = flags, .len = len, .buf = buf,
		.data = data, .tag = tag, .src = src,
	};
	return 0;
}

static ssize_t cq_writeerr(struct fid_peer_cq *cq,
			   const struct fi_cq_err_entry *entry)
{
	REQUIRE(cq == &owner.cq && owner.count < 16);
	owner.got[owner.count++] = (struct ct_completion) {
		.context = entry->op_context, .flags = entry->flags,
		.len = entry->len, .err = entry->err, .olen = entry->olen,
	};
	return 0;
}

static struct fi_ops_cq_owner cq_ops = {
	.size = sizeof(cq_ops), .write = cq_write, .writeerr = cq_writeerr,
};
static struct fi_ops fid_ops = { .size = sizeof(fid_ops) };

/* The application's receive, as the owner sees it. */
static void post(int context, void *buf, size_t len, void *desc, bool tagged,
		 uint64_t tag)
{
	struct entry *entry = take(&owner.unexpected, tagged, tag);
	bool waited = entry;

	if (!entry)
		entry = new_entry();
	entry->tagged = tagged;
	entry->rx.tag = tag;
	entry->rx.flags |= FI_RECV | FI_COMPLETION |
			   (tagged ? FI_TAGGED : FI_MSG);
	entry->rx.context = &rx_context[context];
	entry->iov = (struct iovec) { buf, len };
	entry->desc = desc;
	entry->rx.count = 1;
	if (!waited)
		append(&owner.posted, entry);
	else
		OK(tagged ? owner.srx.peer_ops->start_tag(&entry->rx)
			  : owner.srx.peer_ops->start_msg(&entry->rx));
}

struct bench {
	struct ct_pair pair;
	struct ct_memory in, out;
};

static uint64_t more_caps;

static void drive(void)
{
	fi_cq_read(owner.peer_cq, NULL, 0);
}

#define UNTIL_DRIVEN(bench, cond)					\
	UNTIL(&(bench)->pair.a, (drive(), (cond)))

/* With known, b knows a from the start. */
static void setup_between(struct bench *bench, bool known)
{
	struct fi_peer_srx_context srx = { sizeof(srx), &owner.srx };
	struct fi_peer_cq_context cq = { sizeof(cq), &owner.cq };
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED | more_caps, .one_cq = true };
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED, .flags = FI_PEER,
	};
	struct fi_rx_attr rx_attr = { .op_flags = FI_PEER };
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	unsigned char name[CT_NAME];

	memset(bench, 0, sizeof(*bench));
	ct_open_domain(a, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_domain(b, &spec, ct_getinfo(&spec), a->fabric, NULL);
	owner.srx.owner_ops = &srx_ops;
	owner.cq.fid = (struct fid) { FI_CLASS_PEER_CQ, NULL, &fid_ops };
	owner.cq.owner_ops = &cq_ops;
	OK(fi_close(&b->tx.fid->fid));
	OK(fi_cq_open(b->domain, &cq_attr, &owner.peer_cq, &cq));
	b->tx.fid = owner.peer_cq;
	OK(fi_srx_context(b->domain, &rx_attr, &b->srx, &srx));
	REQUIRE(owner.srx.peer_ops);
	if (ct_opt.type != FI_EP_MSG)
		ct_open_ep(a, a->info);
	ct_open_ep(b, b->info);
	/* The support library would read from it. */
	b->tx.fid = b->rx.fid = NULL;
	if (ct_opt.type != FI_EP_MSG) {
		ct_name(&b->ep->fid, name, sizeof(name));
		a->to = ct_insert(a, name);
		if (known) {
			ct_name(&a->ep->fid, name, sizeof(name));
			b->to = ct_insert(b, name);
		}
	} else {
		a->partner = b;
		b->partner = a;
		bench->pair.pep = ct_listen(a);
		ct_name(&bench->pair.pep->fid, name, sizeof(name));
		ct_connect(b, a, name);
	}
	ct_memory_open(b, &bench->in, 2 * ROOM, FI_RECV | FI_SEND);
	ct_memory_open(a, &bench->out, 2 * ROOM, FI_SEND | FI_RECV);
}

static void setup(struct bench *bench)
{
	setup_between(bench, true);
}

/* Nothing of the peer is left. The memory of what was not sent yet is the sender's. */
static void teardown(struct bench *bench)
{
	OK(fi_close(&bench->pair.a.ep->fid));
	bench->pair.a.ep = NULL;
	OK(fi_close(&bench->pair.b.ep->fid));
	bench->pair.b.ep = NULL;
	ct_memory_close(&bench->in);
	ct_memory_close(&bench->out);
	OK(fi_close(&bench->pair.b.srx->fid));
	bench->pair.b.srx = NULL;
	OK(fi_close(&owner.peer_cq->fid));
	ct_close_pair(&bench->pair);
	REQUIRE(owner.live == 0 && !owner.unexpected);
}

static void send_one(struct bench *bench, int context, size_t offset,
		     size_t len, bool tagged, uint64_t tag)
{
	struct ct_message m = {
		.tagged = tagged, .tag = tag, .len = len,
		.buf = bench->out.data + offset, .desc = bench->out.desc,
		.context = &tx_context[context],
	};

	ct_fill(m.buf, len, (unsigned)context);
	UNTIL_DRIVEN(bench, ct_send(&bench->pair.a, CT_SEND, &m) == 0);
}

static void received(struct bench *bench, int nth, int context, size_t offset,
		     size_t len, unsigned seed, bool tagged, uint64_t tag)
{
	struct ct_completion *got = &owner.got[nth];

	UNTIL_DRIVEN(bench, owner.count > nth);
	REQUIRE(!got->err && got->context == &rx_context[context]);
	REQUIRE(got->len == len);
	REQUIRE(got->flags == (FI_RECV | (tagged ? FI_TAGGED : FI_MSG)));
	REQUIRE(!tagged || got->tag == tag);
	REQUIRE(ct_holds(bench->in.data + offset, len, seed));
}

/* Small messages and large ones, each kind before and after its receive. */
static void messages(bool tagged, size_t len)
{
	struct bench bench;

	setup(&bench);
	post(0, bench.in.data, ROOM, bench.in.desc, tagged, 0);
	send_one(&bench, 0, 0, len, tagged, 0);
	received(&bench, 0, 0, 0, len, 0, tagged, 0);
	ct_done(&bench.pair.a, &bench.pair.a.tx, &tx_context[0]);
	REQUIRE(owner.live == 0);

	send_one(&bench, 1, ROOM, len, tagged, 0);
	UNTIL_DRIVEN(&bench, owner.unexpected);
	REQUIRE(owner.unexpected->rx.msg_size == len);
	post(1, bench.in.data + ROOM, ROOM, bench.in.desc, tagged, 0);
	received(&bench, 1, 1, ROOM, len, 1, tagged, 0);
	UNTIL_DRIVEN(&bench, bench.pair.a.tx.count == 1);
	ct_done(&bench.pair.a, &bench.pair.a.tx, &tx_context[1]);
	REQUIRE(owner.live == 0 && owner.count == 2);
	teardown(&bench);
}

static void small(void)
{
	messages(false, 100);
}

static void small_tagged(void)
{
	messages(true, 100);
}

static void empty(void)
{
	messages(true, 0);
}

static void large(void)
{
	messages(false, ROOM);
}

static void large_tagged(void)
{
	messages(true, ROOM);
}

/* The owner decides which message is received first. */
static void chosen(void)
{
	struct bench bench;

	setup(&bench);
	for (int i = 0; i < 3; i++)
		send_one(&bench, i, i * 1000, 1000, true, (uint64_t)i);
	UNTIL_DRIVEN(&bench, owner.live == 3);
	for (int i = 0; i < 3; i++) {
		int tag = 2 - i;

		post(i, bench.in.data + i * 1000, 1000, bench.in.desc, true,
		     (uint64_t)tag);
		received(&bench, i, i, i * 1000, 1000, (unsigned)tag, true,
			 (uint64_t)tag);
	}
	UNTIL_DRIVEN(&bench, bench.pair.a.tx.count == 3);
	teardown(&bench);
}

/* A discarded message is reported nowhere; its entry is the owner's again. */
static void discard(void)
{
	struct bench bench;
	struct entry *entry;

	setup(&bench);
	send_one(&bench, 0, 0, 100, true, 5);
	send_one(&bench, 1, 100, ROOM, true, 5);
	UNTIL_DRIVEN(&bench, owner.live == 2);
	while ((entry = take(&owner.unexpected, true, 5))) {
		OK(owner.srx.peer_ops->discard_tag(&entry->rx));
		free_entry(&entry->rx);
	}
	send_one(&bench, 2, 0, 10, true, 6);
	post(2, bench.in.data, 100, bench.in.desc, true, 6);
	received(&bench, 0, 2, 0, 10, 2, true, 6);
	REQUIRE(owner.count == 1 && owner.live == 0);
	teardown(&bench);
}

static void truncated(void)
{
	struct bench bench;

	setup(&bench);
	post(0, bench.in.data, 10, bench.in.desc, false, 0);
	send_one(&bench, 0, 0, 100, false, 0);
	UNTIL_DRIVEN(&bench, owner.count == 1);
	REQUIRE(owner.got[0].err == FI_ETRUNC);
	REQUIRE(owner.got[0].context == &rx_context[0]);
	send_one(&bench, 1, 0, 100, false, 0);
	UNTIL_DRIVEN(&bench, owner.unexpected);
	post(1, bench.in.data, 10, bench.in.desc, false, 0);
	UNTIL_DRIVEN(&bench, owner.count == 2);
	REQUIRE(owner.got[1].err == FI_ETRUNC);
	UNTIL_DRIVEN(&bench, owner.live == 0);
	teardown(&bench);
}

/* The owner is informed of the source of a waiting message as soon as the
 * address is inserted. */
static void learnt(void)
{
	unsigned char name[CT_NAME];
	struct bench bench;
	struct ct_peer *b = &bench.pair.b;

	setup_between(&bench, false);
	send_one(&bench, 0, 0, 100, true, 5);
	send_one(&bench, 1, 100, ROOM, true, 6);
	UNTIL_DRIVEN(&bench, owner.live == 2);
	REQUIRE(owner.unexpected->rx.addr == FI_ADDR_UNSPEC);
	ct_name(&bench.pair.a.ep->fid, name, sizeof(name));
	b->to = ct_insert(b, name);
	for (struct entry *entry = owner.unexpected; entry; entry = entry->next)
		REQUIRE(entry->rx.addr == b->to);
	post(0, bench.in.data, 100, bench.in.desc, true, 5);
	received(&bench, 0, 0, 0, 100, 0, true, 5);
	post(1, bench.in.data, ROOM, bench.in.desc, true, 6);
	received(&bench, 1, 1, 0, ROOM, 1, true, 6);
	teardown(&bench);
}

/* Unreceived messages are freed with the endpoint. */
static void closed(void)
{
	struct bench bench;

	setup(&bench);
	send_one(&bench, 0, 0, 100, true, 5);
	send_one(&bench, 1, 100, ROOM, false, 0);
	UNTIL_DRIVEN(&bench, owner.live == 2);
	teardown(&bench);
}

/* Receives are posted to the owner only. */
static void no_receives(void)
{
	struct fid_ep *ep[2];
	struct bench bench;
	void *in;

	setup(&bench);
	in = bench.in.data;
	ep[0] = bench.pair.b.srx;
	ep[1] = bench.pair.b.ep;
	for (int i = 0; i < 2; i++) {
		EXPECT(fi_recv(ep[i], in, 8, NULL, FI_ADDR_UNSPEC, NULL),
		       -FI_ENOSYS);
		EXPECT(fi_trecv(ep[i], in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, NULL),
		       -FI_ENOSYS);
	}
	teardown(&bench);
}

/* Receives that are memory of a device, which the owner does not say. */
static void device(void)
{
	static unsigned char content[ROOM];
	struct bench bench;
	uint64_t data;

	ct_device();
	more_caps = FI_HMEM;
	setup(&bench);
	OK(ct_device()->alloc(&data, ROOM));
	for (int i = 0; i < 4; i++) {
		size_t len = i % 2 ? 100000 : 100;
		void *in = (void *)(uintptr_t)data;

		/* Before the message, and behind it. */
		if (i < 2)
			post(i, in, ROOM, NULL, false, 0);
		send_one(&bench, i, 0, len, false, 0);
		if (i >= 2) {
			UNTIL_DRIVEN(&bench, owner.unexpected);
			post(i, in, ROOM, NULL, false, 0);
		}
		UNTIL_DRIVEN(&bench, owner.count > i);
		REQUIRE(!owner.got[i].err && owner.got[i].len == len);
		ct_device()->peek(data, content, len);
		CHECK(ct_holds(content, len, (unsigned)i), "%d", i);
		ct_done(&bench.pair.a, &bench.pair.a.tx, &tx_context[i]);
	}
	OK(ct_device()->free(data));
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "small", small, CT_BOTH },
	{ "small-tagged", small_tagged, CT_BOTH },
	{ "empty", empty, CT_BOTH },
	{ "large", large, CT_BOTH },
	{ "large-tagged", large_tagged, CT_BOTH },
	{ "chosen", chosen, CT_BOTH },
	{ "discard", discard, CT_BOTH },
	{ "truncated", truncated, CT_BOTH },
	{ "learnt", learnt, CT_RDM },
	{ "closed", closed, CT_BOTH },
	{ "no-receives", no_receives, CT_BOTH },
	{ "device", device, CT_BOTH },
};

CT_MAIN(tests)
