/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Work for an instruction counter: n times an 8-byte tagged message between
 * two RDM endpoints of one thread. Two runs with different n give the cost of
 * one message as the difference of their counts.
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "peer.h"
#include "transfer.h"

int main(int argc, char **argv)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_spec spec = {
		.caps = FI_TAGGED, .format = FI_CQ_FORMAT_TAGGED,
	};
	long count = argc > 1 ? atol(argv[1]) : 1000;
	struct fi_cq_tagged_entry entry;
	struct ct_pair pair;
	char out[8] = "message", in[8];

	ct_opt.type = FI_EP_RDM;
	ct_opt.provider = argc > 2 ? argv[2] : NULL;
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	for (long i = 0; i < count; i++) {
		OK(fi_trecv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1,
			    0, &rx_context));
		OK(fi_tsend(pair.a.ep, out, sizeof(out), NULL, pair.a.to, 1,
			    &tx_context));
		while (fi_cq_read(pair.a.tx.fid, &entry, 1) != 1)
			;
		while (fi_cq_read(pair.b.rx.fid, &entry, 1) != 1)
			;
	}
	ct_close_pair(&pair);
	return 0;
}
