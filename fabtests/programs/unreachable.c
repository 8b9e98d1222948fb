/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Operations for a peer that is not there end with an error, and -FI_EAGAIN
 * is only returned as long as another try can do better. */
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 context;
static uint64_t operand, result;

/* An endpoint that knows the address of one that is closed. */
static void open_alone(struct ct_peer *peer)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA | FI_ATOMIC };
	unsigned char name[CT_NAME];
	struct ct_peer gone;

	/* So that the test need not be patient; read at the first call. */
	setenv("FI_TCP_CONNECT_TIMEOUT", "500", 1);
	setenv("FI_SHM_CONNECT_TIMEOUT", "500", 1);
	setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "500", 1);
	ct_open_single(&gone, &spec);
	ct_name(&gone.ep->fid, name, sizeof(name));
	ct_open_single(peer, &spec);
	ct_close_peer(&gone);
	peer->to = ct_insert(peer, name);
}

static ssize_t add(struct ct_peer *peer)
{
	return fi_atomic(peer->ep, &operand, 1, NULL, peer->to, 0, 1, FI_UINT64,
			 FI_SUM, &context);
}

static ssize_t inject_add(struct ct_peer *peer)
{
	return fi_inject_atomic(peer->ep, &operand, 1, peer->to, 0, 1,
				FI_UINT64, FI_SUM);
}

static ssize_t fetch_add(struct ct_peer *peer)
{
	return fi_fetch_atomic(peer->ep, &operand, 1, NULL, &result, NULL,
			       peer->to, 0, 1, FI_UINT64, FI_SUM, &context);
}

/* An atomic operation fails at the call or, if it was accepted, with a
 * completion; each try is one. */
static void atomics(void)
{
	static ssize_t (*const forms[])(struct ct_peer *) = {
		add, inject_add, fetch_add, add,
	};
	struct ct_peer peer;

	open_alone(&peer);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		ssize_t ret = CT_POST(&peer, forms[i](&peer));

		if (!ret) {
			REQUIRE(forms[i] == inject_add ||
				ct_error(&peer, &peer.tx).err > 0);
			continue;
		}
		REQUIRE(ret == -FI_ECONNREFUSED || ret == -FI_ETIMEDOUT ||
			ret == -FI_EHOSTUNREACH);
		REQUIRE(ct_stays_empty(&peer, &peer.tx));
	}
	ct_close_peer(&peer);
}

static void messages(void)
{
	struct ct_completion done;
	struct ct_peer peer;

	open_alone(&peer);
	POST(&peer, fi_send(peer.ep, NULL, 0, NULL, peer.to, &context));
	done = ct_error(&peer, &peer.tx);
	REQUIRE(done.context == &context && done.err > 0);
	POST(&peer, fi_write(peer.ep, &operand, sizeof(operand), NULL, peer.to,
			     0, 1, &context));
	done = ct_error(&peer, &peer.tx);
	REQUIRE(done.context == &context && done.err > 0);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "atomics", atomics, CT_RDM },
	{ "messages", messages, CT_RDM },
};

CT_MAIN(tests)
