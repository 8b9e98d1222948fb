/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Endpoints: set-up and its errors, options, control commands, aliases. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "child.h"
#include "memory.h"
#include "pattern.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[16], rx_context[16];

/* A domain and its queues; tests open endpoints themselves. */
static void open_domain(struct ct_peer *peer, uint64_t caps)
{
	struct ct_spec spec = { .caps = caps };

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
}

static void identity(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	int marker;
	struct fid_ep *ep;

	ct_open_single(&peer, &spec);
	CHECK(peer.fabric->fid.fclass == FI_CLASS_FABRIC, "fabric");
	CHECK(peer.domain->fid.fclass == FI_CLASS_DOMAIN, "domain");
	CHECK(peer.ep->fid.fclass == FI_CLASS_EP, "endpoint");
	CHECK(peer.tx.fid->fid.fclass == FI_CLASS_CQ, "cq");
	CHECK(peer.ep->fid.context == &peer, "context");
	OK(fi_endpoint(peer.domain, peer.info, &ep, &marker));
	CHECK(ep->fid.context == &marker, "own-context");
	OK(fi_close(&ep->fid));
	ct_close_peer(&peer);
}

/* fi_enable returns which binding is missing. */
static void enable(void)
{
	struct fid_ep *ep;
	struct ct_peer peer;

	open_domain(&peer, FI_MSG);
	OK(fi_endpoint(peer.domain, peer.info, &ep, NULL));
	if (peer.av) {
		OK(fi_ep_bind(ep, &peer.tx.fid->fid, FI_TRANSMIT | FI_RECV));
		CHECK(fi_enable(ep) == -FI_ENOAV, "without-av");
		OK(fi_close(&ep->fid));
		OK(fi_endpoint(peer.domain, peer.info, &ep, NULL));
		OK(fi_ep_bind(ep, &peer.av->fid, 0));
	} else {
		OK(fi_ep_bind(ep, &peer.eq.fid->fid, 0));
	}
	CHECK(fi_enable(ep) == (ct_needs_queues() ? -FI_ENOCQ : 0), "without-cq");
	OK(fi_close(&ep->fid));
	ct_close_peer(&peer);
}

/* An endpoint that could not report its connection is refused, sooner or
 * later. */
static void without_eq(void)
{
	struct fid_ep *ep;
	struct ct_peer peer;
	int ret;

	open_domain(&peer, FI_MSG);
	OK(fi_endpoint(peer.domain, peer.info, &ep, NULL));
	OK(fi_ep_bind(ep, &peer.tx.fid->fid, FI_TRANSMIT | FI_RECV));
	ret = fi_enable(ep);
	if (!ret)
		ret = fi_connect(ep, peer.info->src_addr, NULL, 0);
	CHECK(ret == -FI_ENOEQ, "errno");
	OK(fi_close(&ep->fid));
	ct_close_peer(&peer);
}

static void bindings(void)
{
	struct ct_peer peer;
	struct fid_ep *ep;

	open_domain(&peer, FI_MSG);
	OK(fi_endpoint(peer.domain, peer.info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &peer.domain->fid, 0) < 0, "domain");
	CHECK(fi_ep_bind(ep, &peer.tx.fid->fid, 1ULL << 63) < 0,
	      "unknown-flag");
	OK(fi_ep_bind(ep, &peer.tx.fid->fid, FI_TRANSMIT));
	CHECK(fi_ep_bind(ep, &peer.rx.fid->fid, FI_TRANSMIT) < 0,
	      "second-queue");
	OK(fi_ep_bind(ep, &peer.rx.fid->fid, FI_RECV));
	if (peer.av)
		OK(fi_ep_bind(ep, &peer.av->fid, 0));
	else
		OK(fi_ep_bind(ep, &peer.eq.fid->fid, 0));
	OK(fi_enable(ep));
	OK(fi_close(&ep->fid));
	ct_close_peer(&peer);
}

/* Objects that something lives in or reports to are busy. */
static void close_order(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	CHECK(fi_close(&peer.fabric->fid) == -FI_EBUSY, "fabric");
	CHECK(fi_close(&peer.domain->fid) == -FI_EBUSY, "domain");
	CHECK(fi_close(&peer.tx.fid->fid) == -FI_EBUSY, "transmit-cq");
	CHECK(fi_close(&peer.rx.fid->fid) == -FI_EBUSY, "receive-cq");
	if (peer.av)
		CHECK(fi_close(&peer.av->fid) == -FI_EBUSY, "av");
	else
		CHECK(fi_close(&peer.eq.fid->fid) == -FI_EBUSY, "eq");
	ct_close_peer(&peer);
}

/* Operations in flight do not keep an endpoint from closing. */
static void close_with_work(void)
{
	struct ct_spec spec = { 0 };
	struct ct_memory out, in;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, 4 << 20, FI_SEND);
	ct_memory_open(&pair.b, &in, 4 << 20, FI_RECV);
	for (int i = 0; i < 8; i++)
		POST(&pair.b, fi_recv(pair.b.ep, in.data, 100, in.desc,
				      FI_ADDR_UNSPEC, &rx_context[i]));
	for (int i = 0; i < 4; i++)
		POST(&pair.a, fi_send(pair.a.ep, out.data, out.size, out.desc,
				      pair.a.to, &tx_context[i]));
	OK(fi_close(&pair.a.ep->fid));
	pair.a.ep = NULL;
	for (int i = 0; i < 200; i++)
		ct_nudge(&pair.b);
	OK(fi_close(&pair.b.ep->fid));
	pair.b.ep = NULL;
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

/* A disabled endpoint sends nothing; it may accept receives early or refuse
 * them. */
static void disabled(void)
{
	struct ct_peer peer;

	open_domain(&peer, FI_MSG);
	ct_open_ep_disabled(&peer, peer.info);
	fi_recv(peer.ep, NULL, 0, NULL, 0, &rx_context[0]);
	CHECK(fi_send(peer.ep, NULL, 0, NULL, 0, &tx_context[0]) < 0, "send");
	ct_close_peer(&peer);
}

static void limits(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_memory out;
	struct iovec iov[64];
	void *desc[64] = { NULL };
	size_t inject, iov_limit;

	ct_open_pair(&pair, &spec);
	inject = pair.a.info->tx_attr->inject_size;
	iov_limit = pair.a.info->tx_attr->iov_limit;
	CHECK(inject >= 64, "inject-size");
	CHECK(iov_limit >= 1, "iov-limit");
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &out, inject + 1, FI_SEND);
	CHECK(fi_inject(pair.a.ep, out.data, inject + 1, pair.a.to) < 0 &&
	      fi_inject(pair.a.ep, out.data, inject + 1, pair.a.to) !=
	      -FI_EAGAIN, "inject-too-long");
	if (iov_limit < 64) {
		for (size_t i = 0; i < 64; i++)
			iov[i] = (struct iovec) { out.data, 1 };
		CHECK(fi_sendv(pair.a.ep, iov, desc, iov_limit + 1, pair.a.to,
			       &tx_context[0]) < 0, "too-many-pieces");
	}
	ct_memory_close(&out);
	ct_close_pair(&pair);
}

/* An application that never reads completions gets -FI_EAGAIN in the end and
 * does not hang; it can continue once it reads. */
static void full_queue(void)
{
	enum { MOST = 200000 };
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	long posted = 0;
	ssize_t ret;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	while (posted < MOST &&
	       !(ret = fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			       &tx_context[0])))
		posted++;
	CHECK(posted == MOST || ret == -FI_EAGAIN, "again");
	for (long i = 0; i < posted; i++) {
		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context[0]));
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	}
	for (long i = 0; i < posted; i++)
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_warm_up(&pair);
	ct_close_pair(&pair);
}

static void options(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	size_t value = 0, len = sizeof(value), small = 1;
	int ret;

	ct_open_single(&peer, &spec);
	if (ct_opt.type == FI_EP_MSG) {
		OK(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT,
			     FI_OPT_CM_DATA_SIZE, &value, &len));
		CHECK(value > 0 && len == sizeof(value), "cm-data-size");
		ret = fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT,
				FI_OPT_CM_DATA_SIZE, &value, &small);
		CHECK(ret == -FI_ETOOSMALL, "too-small");
		CHECK(fi_setopt(&peer.ep->fid, FI_OPT_ENDPOINT,
				FI_OPT_CM_DATA_SIZE, &value, sizeof(value)) < 0,
		      "read-only");
	}
	len = sizeof(value);
	CHECK(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT, 9999, &value, &len) ==
	      -FI_ENOPROTOOPT, "unknown-get");
	CHECK(fi_setopt(&peer.ep->fid, FI_OPT_ENDPOINT, 9999, &value, len) ==
	      -FI_ENOPROTOOPT, "unknown-set");
	ret = fi_getopt(&peer.ep->fid, 1000, FI_OPT_CM_DATA_SIZE, &value, &len);
	CHECK(ret < 0, "unknown-level");
	ct_close_peer(&peer);
}

static void size_options(void)
{
	static const struct {
		int option;
		const char *name;
		bool inject;
	} sizes[] = {
		{ FI_OPT_MAX_MSG_SIZE, "max-msg", false },
		{ FI_OPT_MAX_TAGGED_SIZE, "max-tagged", false },
		{ FI_OPT_MAX_RMA_SIZE, "max-rma", false },
		{ FI_OPT_INJECT_MSG_SIZE, "inject-msg", true },
		{ FI_OPT_INJECT_TAGGED_SIZE, "inject-tagged", true },
		{ FI_OPT_INJECT_RMA_SIZE, "inject-rma", true },
	};
	struct ct_spec spec = { 0 };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t limit = sizes[i].inject ?
			       peer.info->tx_attr->inject_size :
			       peer.info->ep_attr->max_msg_size;
		size_t value = 0, len = sizeof(value);
		int ret = fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT,
				    sizes[i].option, &value, &len);

		CHECK(ret == -FI_ENOPROTOOPT || (!ret && value <= limit), "%s",
		      sizes[i].name);
	}
	ct_close_peer(&peer);
}

/* Default operation flags, read and replaced. */
static void operation_flags(void)
{
	struct ct_spec spec = {
		.selective_tx = true, .tx_op_flags = FI_COMPLETION,
	};
	struct ct_pair pair;
	uint64_t flags = FI_TRANSMIT;

	ct_open_pair(&pair, &spec);
	OK(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags));
	CHECK(flags & FI_COMPLETION, "get-transmit");
	flags = FI_RECV;
	OK(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags));
	CHECK(true, "get-receive");
	flags = FI_TRANSMIT | FI_RECV;
	CHECK(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags) == -FI_EINVAL,
	      "get-both");
	flags = 0;
	CHECK(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags) == -FI_EINVAL,
	      "set-neither");

	flags = FI_TRANSMIT;
	OK(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags));
	flags = FI_TRANSMIT;
	OK(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags));
	CHECK(!(flags & FI_COMPLETION), "replaced");
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context[0]));
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			      &tx_context[0]));
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "no-completion");
	flags = FI_TRANSMIT | FI_COMPLETION;
	OK(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags));
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context[0]));
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			      &tx_context[0]));
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	CHECK(true, "completion-again");
	ct_close_pair(&pair);
}

static void control(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	int fd = -1, type, ret;
	socklen_t len = sizeof(type);

	ct_open_single(&peer, &spec);
	CHECK(fi_control(&peer.ep->fid, 0x7fffff, &fd) < 0, "unknown-command");
	ret = fi_control(&peer.ep->fid, FI_GET_FD, &fd);
	if (!ret)
		CHECK(!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len),
		      "socket");
	else
		CHECK(ret < 0, "socket");
	ct_close_peer(&peer);
}

/* An alias is the same endpoint with operation flags of its own. */
static void alias(void)
{
	struct ct_spec spec = {
		.selective_tx = true, .tx_op_flags = FI_COMPLETION,
	};
	struct fid_ep *quiet = NULL, *parent;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	parent = pair.a.ep;
	OK(fi_ep_alias(parent, &quiet, FI_TRANSMIT));
	REQUIRE(quiet != parent);
	for (int i = 0; i < 4; i++) {
		bool through_alias = i % 2;

		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context[0]));
		POST(&pair.a, fi_send(through_alias ? quiet : parent, NULL, 0,
				      NULL, pair.a.to, &tx_context[0]));
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		if (!through_alias)
			ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		REQUIRE(ct_stays_empty(&pair.a, &pair.a.tx));
	}
	CHECK(true, "flags");
	CHECK(fi_close(&parent->fid) == -FI_EBUSY, "parent-busy");
	OK(fi_close(&quiet->fid));
	CHECK(fi_ep_alias(parent, &quiet, FI_TRANSMIT | FI_RECV) < 0,
	      "both-directions");
	ct_close_pair(&pair);
}

/* Several endpoints with the same queues, vector and domain. */
static void several(void)
{
	enum { COUNT = 5 };
	struct ct_peer hub[1], other;
	struct ct_spec spec = { 0 };
	struct fid_ep *eps[COUNT];
	fi_addr_t addr[COUNT];

	open_domain(hub, FI_MSG);
	ct_open_single(&other, &spec);
	other.partner = hub;
	for (int i = 0; i < COUNT; i++) {
		unsigned char name[CT_NAME];

		ct_open_ep(hub, hub->info);
		eps[i] = hub->ep;
		ct_name(&eps[i]->fid, name, sizeof(name));
		addr[i] = ct_insert(&other, name);
		OK(fi_recv(eps[i], NULL, 0, NULL, FI_ADDR_UNSPEC,
			   &rx_context[i]));
	}
	for (int i = COUNT - 1; i >= 0; i--) {
		POST(&other, fi_send(other.ep, NULL, 0, NULL, addr[i],
				     &tx_context[i]));
		ct_done(&other, &other.tx, &tx_context[i]);
		ct_done(&other, &hub->rx, &rx_context[i]);
	}
	for (int i = 0; i < COUNT; i++)
		OK(fi_close(&eps[i]->fid));
	hub->ep = NULL;
	ct_close_peer(&other);
	ct_close_peer(hub);
}

/* The name of an endpoint is the address at which it can be reached, and does
 * not change. */
static void name(void)
{
	unsigned char first[256], second[256];
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	size_t len, needed = 0;

	ct_open_single(&peer, &spec);
	len = ct_name(&peer.ep->fid, first, sizeof(first));
	REQUIRE(ct_name(&peer.ep->fid, second, sizeof(second)) == len);
	CHECK(!memcmp(first, second, len), "same");
	EXPECT(fi_getname(&peer.ep->fid, NULL, &needed), -FI_ETOOSMALL);
	CHECK(needed == len, "needed-size");
	ct_close_peer(&peer);
}

/* A peer that does not exist: an error, in bounded time, and never for ever
 * "try again". */
static void nobody_there(void)
{
	struct ct_spec spec = { 0 };
	unsigned char name[CT_NAME];
	struct ct_peer peer, gone;
	double until;
	ssize_t ret;

	ct_open_single(&peer, &spec);
	ct_open_single(&gone, &spec);
	ct_name(&gone.ep->fid, name, sizeof(name));
	peer.to = ct_insert(&peer, name);
	ct_close_peer(&gone);
	until = ct_now() + 3 * ct_patience();
	while ((ret = fi_send(peer.ep, NULL, 0, NULL, peer.to,
			      &tx_context[0])) == -FI_EAGAIN) {
		REQUIRE(ct_now() < until);
		ct_progress(&peer);
	}
	if (!ret) {
		while (!peer.tx.count) {
			REQUIRE(ct_now() < until);
			ct_progress(&peer);
		}
		REQUIRE(ct_error(&peer, &peer.tx).err > 0);
	}
	ct_close_peer(&peer);
}

/* A peer that was restarted at the same address is reached again. */
static void peer_restarts(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer a, b;
	unsigned char name[CT_NAME], own[256];
	size_t len;

	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	len = ct_name(&b.ep->fid, name, sizeof(name));
	ct_name(&a.ep->fid, own, sizeof(own));
	a.to = ct_insert(&a, name);
	for (int round = 0; round < 3; round++) {
		double until = ct_now() + 3 * ct_patience();
		struct ct_completion done;

		a.partner = &b;
		b.partner = &a;
		b.to = ct_insert(&b, own);
		POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				 &rx_context[0]));
		/* The first may meet the connection that is gone. */
		do {
			REQUIRE(ct_now() < until);
			POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to,
					 &tx_context[0]));
			done = ct_next(&a, &a.tx);
		} while (done.err || (!b.rx.count &&
				      ct_stays_empty(&b, &b.rx)));
		ct_done(&b, &b.rx, &rx_context[0]);
		CHECK(true, "round-%d", round);
		if (round == 2)
			break;
		a.partner = NULL;
		ct_close_peer(&b);
		{
			struct fi_info *info = ct_getinfo(&spec);
			int ret;

			free(info->src_addr);
			info->src_addr = malloc(len);
			REQUIRE(info->src_addr);
			memcpy(info->src_addr, name, len);
			info->src_addrlen = len;
			ct_open_domain(&b, &spec, info, NULL, NULL);
			ret = fi_endpoint(b.domain, b.info, &b.ep, NULL);
			if (ret == -FI_EADDRNOTAVAIL)
				SKIP("addresses are given out, not chosen");
			OK(ret);
			OK(fi_close(&b.ep->fid));
			ct_open_ep(&b, b.info);
		}
	}
	ct_close_peer(&a);
	ct_close_peer(&b);
}

/* Both sides connect to each other at the same moment. */
static void simultaneous(void)
{
	for (int round = 0; round < 30; round++) {
		struct ct_spec spec = { 0 };
		struct ct_pair pair;
		struct ct_peer *side[2] = { &pair.a, &pair.b };
		bool sent[2] = { false, false };
		double until = ct_now() + ct_patience();

		ct_open_pair(&pair, &spec);
		for (int i = 0; i < 2; i++)
			OK(fi_recv(side[i]->ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				   &rx_context[i]));
		while (!sent[0] || !sent[1]) {
			REQUIRE(ct_now() < until);
			for (int i = 0; i < 2; i++) {
				ssize_t ret;

				if (sent[i])
					continue;
				ret = fi_send(side[i]->ep, NULL, 0, NULL,
					      side[i]->to, &tx_context[i]);
				REQUIRE(!ret || ret == -FI_EAGAIN);
				sent[i] = !ret;
			}
			ct_progress(&pair.a);
		}
		for (int i = 0; i < 2; i++) {
			ct_done(side[i], &side[i]->tx, &tx_context[i]);
			ct_done(side[i], &side[i]->rx, &rx_context[i]);
		}
		ct_close_pair(&pair);
	}
}

enum { LAST_WORDS = 8 };

static void open_met(struct ct_peer *peer, const struct ct_child *child, int fd)
{
	struct ct_card own = { 0 }, other;

	open_domain(peer, FI_MSG);
	if (child)
		ct_begin(child);
	ct_open_ep(peer, peer->info);
	ct_meet(peer, &own, &other, fd, NULL);
}

/* Sends without having met the other side, and closes. */
static void send_and_close(int fd)
{
	struct ct_peer peer;
	char word = 'w';

	open_met(&peer, NULL, fd);
	for (int i = 0; i < LAST_WORDS; i++)
		POST(&peer, fi_inject(peer.ep, &word, sizeof(word), peer.to));
	ct_close_peer(&peer);
}

/* What was injected is complete, and arrives though the endpoint is closed before there is a
 * connection. */
static void last_words(void)
{
	struct ct_child child;
	struct ct_peer peer;
	char words[LAST_WORDS] = { 0 };

	if (ct_opt.provider && !strcmp(ct_opt.provider, "loopback"))
		SKIP("there are no other processes");
	child = ct_spawn(send_and_close);
	open_met(&peer, &child, child.fd);
	for (int i = 0; i < LAST_WORDS; i++)
		POST(&peer, fi_recv(peer.ep, &words[i], 1, NULL, FI_ADDR_UNSPEC,
				    &rx_context[i]));
	for (int i = 0; i < LAST_WORDS; i++) {
		ct_done(&peer, &peer.rx, &rx_context[i]);
		CHECK(words[i] == 'w', "word-%d", i);
	}
	ct_join(&child);
	ct_close_peer(&peer);
}

/* Receives at an endpoint; another one of its domain sends to the other side, which it has not
 * met, and closes at the same moment as the other side's. */
static void exchange_last_words(const struct ct_child *child, int fd)
{
	struct ct_card own = { 0 }, other;
	struct ct_peer peer, second;
	char words[LAST_WORDS] = { 0 }, word = 'w';

	open_domain(&peer, FI_MSG);
	if (child)
		ct_begin(child);
	ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, fd, NULL);
	ct_open_domain(&second, &peer.spec, fi_dupinfo(peer.info), peer.fabric, peer.domain);
	ct_open_ep(&second, second.info);
	second.to = ct_insert(&second, other.name);
	for (int i = 0; i < LAST_WORDS; i++)
		POST(&peer, fi_recv(peer.ep, &words[i], 1, NULL, FI_ADDR_UNSPEC,
				    &rx_context[i]));
	ct_tell(fd, "r", 1);
	ct_hear(fd, &word, 1);
	for (int i = 0; i < LAST_WORDS; i++)
		POST(&second, fi_inject(second.ep, "w", 1, second.to));
	ct_close_peer(&second);
	for (int i = 0; i < LAST_WORDS; i++) {
		ct_done(&peer, &peer.rx, &rx_context[i]);
		REQUIRE(words[i] == 'w');
	}
	/* The other side's connection is not reset before it has received all. */
	ct_tell(fd, "e", 1);
	ct_hear(fd, &word, 1);
	ct_close_peer(&peer);
}

static void exchange_in_child(int fd)
{
	exchange_last_words(NULL, fd);
}

/* As above, and the endpoint that the last words are for makes progress while another endpoint of
 * its domain is closed by the only thread. */
static void last_words_crossing(void)
{
	struct ct_child child;

	if (ct_opt.provider && !strcmp(ct_opt.provider, "loopback"))
		SKIP("there are no other processes");
	child = ct_spawn(exchange_in_child);
	exchange_last_words(&child, child.fd);
	ct_join(&child);
}

static const struct ct_test tests[] = {
	{ "identity", identity, CT_BOTH },
	{ "enable", enable, CT_BOTH },
	{ "without-eq", without_eq, CT_MSG },
	{ "bindings", bindings, CT_BOTH },
	{ "close-order", close_order, CT_BOTH },
	{ "close-with-work", close_with_work, CT_BOTH },
	{ "disabled", disabled, CT_BOTH },
	{ "limits", limits, CT_BOTH },
	{ "full-queue", full_queue, CT_BOTH | CT_SLOW },
	{ "options", options, CT_BOTH },
	{ "size-options", size_options, CT_BOTH },
	{ "operation-flags", operation_flags, CT_BOTH },
	{ "control", control, CT_BOTH },
	{ "alias", alias, CT_BOTH },
	{ "several", several, CT_RDM },
	{ "name", name, CT_BOTH },
	{ "nobody-there", nobody_there, CT_RDM },
	{ "peer-restarts", peer_restarts, CT_RDM },
	{ "simultaneous", simultaneous, CT_RDM },
	{ "last-words", last_words, CT_RDM },
	{ "last-words-crossing", last_words_crossing, CT_RDM },
};

CT_MAIN(tests)
