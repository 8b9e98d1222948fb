/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "stranger.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "connect.h"
#include "wait.h"

void ct_open_strangers(struct ct_pair *pair, const struct ct_spec *spec,
		       unsigned char *name)
{
	struct ct_peer *a = &pair->a, *b = &pair->b;

	memset(pair, 0, sizeof(*pair));
	ct_open_domain(a, spec, ct_getinfo(spec), NULL, NULL);
	ct_open_domain(b, spec, fi_dupinfo(a->info), a->fabric, NULL);
	a->partner = b;
	b->partner = a;
	if (ct_opt.type != FI_EP_MSG)
		ct_open_ep(a, a->info);
	else
		pair->pep = ct_listen(a);
	ct_open_ep(b, b->info);
	ct_name(ct_opt.type != FI_EP_MSG ? &a->ep->fid : &pair->pep->fid, name, 256);
	if (ct_opt.type != FI_EP_MSG)
		b->to = ct_insert(b, name);
}

static struct fi_context2 tx_context, rx_context;

void ct_get_through(struct ct_pair *pair, const unsigned char *name)
{
	if (ct_opt.type == FI_EP_MSG) {
		if (!pair->b.ep)
			ct_open_ep(&pair->b, pair->b.info);
		ct_connect(&pair->b, &pair->a, name);
	}
	POST(&pair->a, fi_recv(pair->a.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			       &rx_context));
	POST(&pair->b, fi_send(pair->b.ep, NULL, 0, NULL, pair->b.to,
			       &tx_context));
	ct_done(&pair->b, &pair->b.tx, &tx_context);
	ct_done(&pair->a, &pair->a.rx, &rx_context);
}

int ct_connect_plainly(const void *name)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0);
	REQUIRE(!connect(fd, name, sizeof(struct sockaddr_in)));
	return fd;
}
