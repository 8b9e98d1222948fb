/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Shared transmit contexts: the operations of several endpoints count together. */
#include <string.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "transfer.h"
#include "wait.h"

#define SIZE 4
/* Bytes of a message: more than any provider sends before there is a receive.
 */
#define LEN (1 << 20)

static struct fid_stx *stx;
static struct fi_context2 tx_context[2 * SIZE], rx_context[2 * SIZE];

static void share(struct fi_info *info)
{
	info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
}

static void bind(struct fid_ep *ep)
{
	OK(fi_ep_bind(ep, &stx->fid, 0));
}

/* Its endpoints go on sharing. */
static void leave(void)
{
	OK(fi_close(&stx->fid));
	stx = NULL;
}

/* Two endpoints of one domain that send to each other. */
static void setup(struct ct_pair *pair, struct ct_spec *spec)
{
	struct ct_peer *a = &pair->a, *b = &pair->b;
	struct fi_tx_attr attr = { .size = SIZE };
	struct fi_info *info;
	unsigned char name[CT_NAME];

	spec->change = share;
	spec->prepare = bind;
	info = ct_getinfo(spec);
	memset(pair, 0, sizeof(*pair));
	ct_open_domain(b, spec, fi_dupinfo(info), NULL, NULL);
	ct_open_domain(a, spec, info, b->fabric, b->domain);
	a->partner = b;
	b->partner = a;
	OK(fi_stx_context(a->domain, &attr, &stx, NULL));
	if (spec->no_queue & FI_TRANSMIT)
		OK(stx->fid.ops->bind(&stx->fid, &a->tx.fid->fid,
				       FI_TRANSMIT));
	if (ct_opt.type == FI_EP_MSG) {
		ct_connect_pair(pair);
		return;
	}
	ct_open_ep(a, a->info);
	ct_open_ep(b, b->info);
	ct_name(&a->ep->fid, name, sizeof(name));
	b->to = ct_insert(b, name);
	ct_name(&b->ep->fid, name, sizeof(name));
	a->to = ct_insert(a, name);
}

static void teardown(struct ct_pair *pair)
{
	struct ct_peer *a = &pair->a, *b = &pair->b;

	if (stx)
		OK(fi_close(&stx->fid));
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	OK(fi_close(&b->ep->fid));
	b->ep = NULL;
	if (pair->pep)
		OK(fi_close(&pair->pep->fid));
	ct_close_peer(a);
	ct_close_peer(b);
}

static ssize_t post(struct ct_peer *from, struct ct_memory *out, int i)
{
	struct iovec iov = { out->data, LEN };
	void *desc = out->desc;
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &desc, .iov_count = 1,
		.addr = from->to, .context = &tx_context[i],
	};

	return fi_sendmsg(from->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static void receive(struct ct_peer *to, struct ct_memory *in, int i)
{
	POST(to, fi_recv(to->ep, in->data, LEN, in->desc, FI_ADDR_UNSPEC,
			 &rx_context[i]));
}

/*
 * A context has room for as many operations as its size says, whichever endpoint
 * posts them. One more is accepted where messages that wait for the peer's receive
 * take no room, and else once those before it are delivered.
 */
static void limit(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct ct_memory out[2], in[2];
	struct ct_pair pair;
	struct ct_peer *peer[2] = { &pair.a, &pair.b };
	int accepted;
	ssize_t ret;

	setup(&pair, &spec);
	for (int i = 0; i < 2; i++) {
		ct_memory_open(peer[i], &out[i], LEN, FI_SEND);
		ct_memory_open(peer[i], &in[i], LEN, FI_RECV);
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < SIZE; i++)
			POST(peer[i % 2], post(peer[i % 2], &out[i % 2], i));
		ret = post(peer[SIZE % 2], &out[SIZE % 2], SIZE);
		REQUIRE(ret == 0 || ret == -FI_EAGAIN);
		accepted = SIZE + (ret == 0);
		for (int i = 0; i < accepted; i++)
			receive(peer[(i + 1) % 2], &in[(i + 1) % 2], i);
		for (int i = 0; i < accepted; i++) {
			ct_done(peer[i % 2], &peer[i % 2]->tx, &tx_context[i]);
			ct_done(peer[(i + 1) % 2], &peer[(i + 1) % 2]->rx,
				&rx_context[i]);
		}
		if (round == 1)
			leave();
		/* One endpoint uses all of them. */
		for (int i = 0; i < SIZE; i++)
			POST(peer[0], post(peer[0], &out[0], i));
		for (int i = 0; i < SIZE; i++)
			receive(peer[1], &in[1], i);
		for (int i = 0; i < SIZE; i++) {
			ct_done(peer[0], &peer[0]->tx, &tx_context[i]);
			ct_done(peer[1], &peer[1]->rx, &rx_context[i]);
		}
	}
	for (int i = 0; i < 2; i++) {
		ct_memory_close(&out[i]);
		ct_memory_close(&in[i]);
	}
	teardown(&pair);
}

/* Endpoints without a queue for transmits complete at the context's. */
static void queue(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .no_queue = FI_TRANSMIT };
	struct ct_memory out[2], in[2];
	struct ct_pair pair;
	struct ct_peer *peer[2] = { &pair.a, &pair.b };

	setup(&pair, &spec);
	for (int i = 0; i < 2; i++) {
		ct_memory_open(peer[i], &out[i], LEN, FI_SEND);
		ct_memory_open(peer[i], &in[i], LEN, FI_RECV);
		receive(peer[i], &in[i], i);
	}
	for (int i = 0; i < 2; i++) {
		POST(peer[i], post(peer[i], &out[i], i));
		ct_done(peer[0], &peer[0]->tx, &tx_context[i]);
		ct_done(peer[1 - i], &peer[1 - i]->rx, &rx_context[1 - i]);
	}
	for (int i = 0; i < 2; i++) {
		ct_memory_close(&out[i]);
		ct_memory_close(&in[i]);
	}
	teardown(&pair);
}

/* Sharing requires a context. */
static void missing(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .change = share };
	struct ct_peer peer;

	memset(&peer, 0, sizeof(peer));
	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep_disabled(&peer, peer.info);
	EXPECT(fi_enable(peer.ep), -FI_EOPBADSTATE);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "limit", limit, CT_BOTH },
	{ "queue", queue, CT_BOTH },
	{ "missing", missing, CT_BOTH },
};

CT_MAIN(tests)
