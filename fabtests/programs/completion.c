/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Which operations complete, and when: selective completion, operation flags
 * and completion levels. */
#include <string.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[8], rx_context[8];

static void receive(struct ct_pair *pair, int i, uint64_t flags)
{
	struct ct_message m = {
		.from = FI_ADDR_UNSPEC, .context = &rx_context[i],
		.flags = flags,
	};

	POST(&pair->b, ct_recv(&pair->b, flags ? CT_RECVMSG : CT_RECV, &m));
}

static void send_form(struct ct_pair *pair, enum ct_send_form form, int i,
		      uint64_t flags)
{
	struct ct_message m = { .context = &tx_context[i], .flags = flags };

	POST(&pair->a, ct_send(&pair->a, form, &m));
}

/* Bound without FI_SELECTIVE_COMPLETION everything completes but inject. */
static void unselective(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
		if (!ct_send_offered(&pair.a, form))
			continue;
		receive(&pair, 0, 0);
		send_form(&pair, form, 0, 0);
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		if (ct_send_completes(form))
			ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "%s",
		      ct_send_name(form));
	}
	ct_close_pair(&pair);
}

/* The default operation flags decide for calls that have no flags. */
static void selective(void)
{
	for (int by_default = 0; by_default < 2; by_default++) {
		struct ct_spec spec = {
			.selective_tx = true,
			.tx_op_flags = by_default ? FI_COMPLETION : 0,
		};
		struct ct_pair pair;

		ct_open_pair(&pair, &spec);
		for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
			bool flagless = form == CT_SEND || form == CT_SENDV ||
					form == CT_SENDDATA;

			if (!ct_send_offered(&pair.a, form))
				continue;
			receive(&pair, 0, 0);
			send_form(&pair, form, 0, 0);
			ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
			if (flagless && by_default)
				ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
			CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "%s%s",
			      ct_send_name(form),
			      by_default ? "-with-default" : "");
		}
		receive(&pair, 0, 0);
		send_form(&pair, CT_SENDMSG, 0, FI_COMPLETION);
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		CHECK(true, "sendmsg-with-flag%s",
		      by_default ? "-with-default" : "");
		ct_close_pair(&pair);
	}
}

static void selective_receives(void)
{
	for (int by_default = 0; by_default < 2; by_default++) {
		struct ct_spec spec = {
			.selective_rx = true,
			.rx_op_flags = by_default ? FI_COMPLETION : 0,
		};
		struct ct_message m = { .from = FI_ADDR_UNSPEC };
		struct ct_pair pair;

		ct_open_pair(&pair, &spec);
		for (enum ct_recv_form form = 0; form < CT_RECV_FORMS; form++) {
			m.context = &rx_context[0];
			POST(&pair.b, ct_recv(&pair.b, form, &m));
			send_form(&pair, CT_SEND, 0, 0);
			ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
			if (by_default && form != CT_RECVMSG)
				ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
			CHECK(ct_stays_empty(&pair.b, &pair.b.rx), "%s%s",
			      ct_recv_name(form),
			      by_default ? "-with-default" : "");
		}
		receive(&pair, 1, FI_COMPLETION);
		send_form(&pair, CT_SEND, 0, 0);
		ct_done(&pair.b, &pair.b.rx, &rx_context[1]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		CHECK(true, "recvmsg-with-flag%s",
		      by_default ? "-with-default" : "");
		ct_close_pair(&pair);
	}
}

static void selective_rma(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .selective_tx = true,
		.selective_rx = true,
	};
	struct ct_memory local, remote;
	struct ct_completion done;
	struct ct_pair pair;
	struct ct_rma rma;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_WRITE);
	ct_fill(local.data, 64, 1);
	rma = (struct ct_rma) {
		.buf = local.data, .len = 64, .desc = local.desc,
		.addr = remote.addr, .key = remote.key,
		.context = &tx_context[0],
	};
	POST(&pair.a, ct_rma(&pair.a, CT_WRITE, &rma));
	UNTIL(&pair.a, ct_holds(remote.data, 64, 1));
	CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "write");
	rma.flags = FI_COMPLETION;
	POST(&pair.a, ct_rma(&pair.a, CT_WRITEMSG, &rma));
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	CHECK(true, "writemsg-with-flag");
	/* Immediate data always report at the target. */
	rma.flags = 0;
	rma.data = 5;
	POST(&pair.a, ct_rma(&pair.a, CT_WRITEDATA, &rma));
	done = ct_next(&pair.b, &pair.b.rx);
	CHECK(!done.err && done.flags & FI_REMOTE_CQ_DATA && done.data == 5,
	      "immediate-data-reports");
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* Errors are reported whether or not a completion was asked for. */
static void selective_error(void)
{
	struct ct_spec spec = { .selective_rx = true, .selective_tx = true };
	struct ct_message m = {
		.from = FI_ADDR_UNSPEC, .context = &rx_context[0],
	};
	unsigned char room[8];
	struct ct_memory out;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, 64, FI_SEND);
	m.buf = room;
	m.len = sizeof(room);
	POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
	m = (struct ct_message) {
		.buf = out.data, .len = 64, .desc = out.desc,
		.context = &tx_context[0],
	};
	POST(&pair.a, ct_send(&pair.a, CT_SEND, &m));
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ETRUNC);
	ct_memory_close(&out);
	ct_close_pair(&pair);
}

/*
 * A completion level, asked for per call or by default: the operation
 * completes, the data are right, and the level's promise holds.
 */
static void level(uint64_t flag, bool by_default, const char *name)
{
	struct ct_spec spec = { .tx_op_flags = by_default ? flag : 0 };
	const size_t sizes[] = { 8, 4096, 300000 };
	struct ct_memory out, in;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, 300000, FI_SEND);
	ct_memory_open(&pair.b, &in, 300000, FI_RECV);
	for (size_t i = 0; i < 3; i++) {
		struct ct_message m = {
			.buf = in.data, .len = sizes[i], .desc = in.desc,
			.from = FI_ADDR_UNSPEC, .context = &rx_context[0],
		};

		ct_fill(out.data, sizes[i], (unsigned)i);
		memset(in.data, 0, sizes[i]);
		POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
		m.buf = out.data;
		m.desc = out.desc;
		m.context = &tx_context[0];
		m.flags = by_default ? 0 : flag;
		POST(&pair.a, ct_send(&pair.a, by_default ? CT_SEND : CT_SENDMSG,
				      &m));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		if (flag == FI_DELIVERY_COMPLETE || flag == FI_MATCH_COMPLETE)
			REQUIRE(ct_holds(in.data, sizes[i], (unsigned)i));
		/* The buffer is ours again whatever the level. */
		memset(out.data, 0xff, sizes[i]);
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		REQUIRE(ct_holds(in.data, sizes[i], (unsigned)i));
	}
	CHECK(true, "%s%s", name, by_default ? "-by-default" : "");
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void inject_complete(void)
{
	level(FI_INJECT_COMPLETE, true, "inject-complete");
	level(FI_INJECT_COMPLETE, false, "inject-complete");
}

static void transmit_complete(void)
{
	level(FI_TRANSMIT_COMPLETE, true, "transmit-complete");
	level(FI_TRANSMIT_COMPLETE, false, "transmit-complete");
}

static void delivery_complete(void)
{
	level(FI_DELIVERY_COMPLETE, true, "delivery-complete");
	level(FI_DELIVERY_COMPLETE, false, "delivery-complete");
}

/* Does not complete before the application has a buffer for it. */
static void match_complete(void)
{
	struct ct_spec spec = { .tx_op_flags = FI_MATCH_COMPLETE };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	send_form(&pair, CT_SEND, 0, 0);
	CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "waits");
	receive(&pair, 0, 0);
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_close_pair(&pair);
	level(FI_MATCH_COMPLETE, true, "match-complete");
}

/* FI_MORE is a hint: nothing stays queued after a call without it. */
static void more(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	for (int i = 0; i < 8; i++)
		receive(&pair, i, i < 7 ? FI_MORE | FI_COMPLETION
					: FI_COMPLETION);
	for (int i = 0; i < 8; i++)
		send_form(&pair, CT_SENDMSG, i, i < 7 ? FI_MORE : 0);
	for (int i = 0; i < 8; i++) {
		ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
	}
	ct_close_pair(&pair);
}

/* A fenced message starts after earlier operations have completed. */
static void fence(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA | FI_FENCE };
	struct ct_memory local, remote;
	struct ct_pair pair;
	struct ct_message m = {
		.flags = FI_FENCE, .context = &tx_context[1],
	};

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 100000, FI_WRITE);
	ct_memory_open(&pair.b, &remote, 100000, FI_REMOTE_WRITE);
	ct_fill(local.data, 100000, 3);
	receive(&pair, 0, 0);
	POST(&pair.a, fi_write(pair.a.ep, local.data, 100000, local.desc,
			       pair.a.to, remote.addr, remote.key,
			       &tx_context[0]));
	POST(&pair.a, ct_send(&pair.a, CT_SENDMSG, &m));
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	REQUIRE(ct_holds(remote.data, 100000, 3));
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* A fenced message, write or atomic operation takes its bytes after the read
 * before it has brought them. */
static void fence_behind_read(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_FENCE };
	struct ct_memory local, remote;
	struct iovec from;
	struct fi_ioc operand;
	struct fi_rma_iov target;
	struct fi_rma_ioc targets;
	struct fi_msg_rma write = {
		.msg_iov = &from, .iov_count = 1, .rma_iov = &target,
		.rma_iov_count = 1, .context = &tx_context[1],
	};
	struct fi_msg_atomic add = {
		.msg_iov = &operand, .iov_count = 1, .rma_iov = &targets,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = &tx_context[1],
	};
	const uint64_t flags = FI_FENCE | FI_COMPLETION | FI_DELIVERY_COMPLETE;
	uint64_t arrived = 0, *here, *there;
	struct ct_message m = { .len = 8, .context = &tx_context[1],
				.flags = FI_FENCE };
	struct ct_message in = { .buf = &arrived, .len = 8,
				 .from = FI_ADDR_UNSPEC,
				 .context = &rx_context[0] };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 8, FI_WRITE | FI_READ);
	ct_memory_open(&pair.b, &remote, 16, FI_REMOTE_WRITE | FI_REMOTE_READ);
	here = (uint64_t *)local.data;
	there = (uint64_t *)remote.data;
	from = (struct iovec) { here, 8 };
	operand = (struct fi_ioc) { here, 1 };
	target = (struct fi_rma_iov) { remote.addr + 8, 8, remote.key };
	targets = (struct fi_rma_ioc) { remote.addr + 8, 1, remote.key };
	write.desc = add.desc = &local.desc;
	write.addr = add.addr = pair.a.to;
	m.buf = here;
	m.desc = local.desc;
	POST(&pair.b, ct_recv(&pair.b, CT_RECV, &in));
	for (uint64_t round = 0; round < 3; round++) {
		*here = 0;
		there[0] = 5 + round;
		there[1] = 100;
		POST(&pair.a, fi_read(pair.a.ep, here, 8, local.desc, pair.a.to,
				      remote.addr, remote.key, &tx_context[0]));
		if (round == 0)
			POST(&pair.a, ct_send(&pair.a, CT_SENDMSG, &m));
		else if (round == 1)
			POST(&pair.a, fi_writemsg(pair.a.ep, &write, flags));
		else
			POST(&pair.a, fi_atomicmsg(pair.a.ep, &add, flags));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
		if (round == 0) {
			ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
			REQUIRE(arrived == 5);
		} else {
			REQUIRE(there[1] == (round == 1 ? 6 : 107));
		}
	}
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* With FI_RX_CQ_DATA the receiver spends a buffer on immediate data; without
 * it a posted receive stays for the next message. */
static void immediate_data_takes_no_buffer(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory local, remote;
	struct ct_pair pair;
	struct ct_completion done;

	ct_open_pair(&pair, &spec);
	if (pair.b.info->mode & FI_RX_CQ_DATA)
		SKIP("FI_RX_CQ_DATA mode");
	ct_memory_open(&pair.a, &local, 64, FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_WRITE);
	receive(&pair, 0, 0);
	POST(&pair.a, fi_writedata(pair.a.ep, local.data, 64, local.desc, 9,
				   pair.a.to, remote.addr, remote.key,
				   &tx_context[0]));
	done = ct_next(&pair.b, &pair.b.rx);
	REQUIRE(!done.err && done.flags & FI_REMOTE_CQ_DATA && done.data == 9);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	send_form(&pair, CT_SEND, 1, 0);
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* A NULL context is returned as NULL if no context mode is required. */
static void null_context(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	if (pair.a.info->mode & (FI_CONTEXT | FI_CONTEXT2))
		SKIP("a context mode");
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, NULL));
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to, NULL));
	ct_done(&pair.b, &pair.b.rx, NULL);
	ct_done(&pair.a, &pair.a.tx, NULL);
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "unselective", unselective, CT_BOTH },
	{ "selective", selective, CT_BOTH },
	{ "selective-receives", selective_receives, CT_BOTH },
	{ "selective-rma", selective_rma, CT_BOTH },
	{ "selective-error", selective_error, CT_BOTH },
	{ "inject-complete", inject_complete, CT_BOTH },
	{ "transmit-complete", transmit_complete, CT_BOTH },
	{ "delivery-complete", delivery_complete, CT_BOTH },
	{ "match-complete", match_complete, CT_BOTH },
	{ "more", more, CT_BOTH },
	{ "fence", fence, CT_BOTH },
	{ "fence-behind-read", fence_behind_read, CT_BOTH },
	{ "immediate-data-takes-no-buffer", immediate_data_takes_no_buffer,
	  CT_BOTH },
	{ "null-context", null_context, CT_BOTH },
};

CT_MAIN(tests)
