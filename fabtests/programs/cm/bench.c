/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "bench.h"

#include <string.h>

#include "check.h"
#include "connect.h"
#include "transfer.h"
#include "wait.h"

struct fi_context2 tx_context, rx_context;

void setup(struct bench *bench)
{
	struct ct_spec spec = { 0 };
	struct ct_pair *pair = &bench->pair;
	struct fi_info *info = ct_getinfo(&spec);

	memset(bench, 0, sizeof(*bench));
	ct_open_domain(&pair->a, &spec, info, NULL, NULL);
	ct_open_domain(&pair->b, &spec, fi_dupinfo(info), pair->a.fabric, NULL);
	pair->a.partner = &pair->b;
	pair->b.partner = &pair->a;
	pair->pep = ct_listen(&pair->a);
	bench->name_len = ct_name(&pair->pep->fid, bench->name,
				  sizeof(bench->name));
}

void exchange(struct ct_pair *pair)
{
	POST(&pair->b, fi_recv(pair->b.ep, NULL, 0, NULL, 0, &rx_context));
	POST(&pair->a, fi_send(pair->a.ep, NULL, 0, NULL, 0, &tx_context));
	ct_done(&pair->b, &pair->b.rx, &rx_context);
	ct_done(&pair->a, &pair->a.tx, &tx_context);
	POST(&pair->a, fi_recv(pair->a.ep, NULL, 0, NULL, 0, &rx_context));
	POST(&pair->b, fi_send(pair->b.ep, NULL, 0, NULL, 0, &tx_context));
	ct_done(&pair->a, &pair->a.rx, &rx_context);
	ct_done(&pair->b, &pair->b.tx, &tx_context);
}

void connect_pair(struct bench *bench)
{
	ct_open_ep(&bench->pair.b, bench->pair.b.info);
	ct_connect(&bench->pair.b, &bench->pair.a, bench->name);
}

size_t data_limit(struct fid *fid)
{
	size_t limit = 0, len = sizeof(limit);

	OK(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, &len));
	REQUIRE(len == sizeof(limit));
	REQUIRE(limit > 0);
	return limit < CT_CM_DATA ? limit : CT_CM_DATA;
}
