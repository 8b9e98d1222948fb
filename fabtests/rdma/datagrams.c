/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The results of fi_getinfo(3) for datagrams on RDMA devices, of which there
 * may be several. Run on a machine with a device: `make check-rdma`.
 */
#include "ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* With FI_SOURCE a node is local, and determines the device of datagrams. */
static void datagram_source(void)
{
	struct fi_info *hints = hints_for(FI_EP_DGRAM, FI_MSG), *known, *found, *at, *own;
	struct fi_info *connected = hints_for(FI_EP_MSG, FI_MSG);
	int devices = 0;

	connected->addr_format = FI_SOCKADDR_IN;
	OK(fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, connected, &known));
	for (own = known; own; own = own->next) {
		const struct sockaddr_in *address = own->src_addr;
		char node[INET_ADDRSTRLEN], domain[80];

		REQUIRE(address);
		inet_ntop(AF_INET, &address->sin_addr, node, sizeof(node));
		snprintf(domain, sizeof(domain), "%s-dgram", own->domain_attr->name);
		OK(fi_getinfo(FI_VERSION(1, 18), node, "5", FI_SOURCE, hints, &found));
		for (at = found; at; at = at->next)
			REQUIRE(!strcmp(at->domain_attr->name, domain));
		fi_freeinfo(found);
		devices++;
	}
	REQUIRE(devices);
	fi_freeinfo(known);
	/* Any of one's own, and none of them. */
	OK(fi_getinfo(FI_VERSION(1, 18), "0.0.0.0", "5", FI_SOURCE, hints, &found));
	fi_freeinfo(found);
	EXPECT(fi_getinfo(FI_VERSION(1, 18), "192.0.2.1", "5", FI_SOURCE, hints, &found),
	       -FI_ENODATA);
	fi_freeinfo(connected);
	fi_freeinfo(hints);
}

static const struct ct_test tests[] = {
	{ "datagram-source", datagram_source, CT_MSG },
};

CT_MAIN(tests)
