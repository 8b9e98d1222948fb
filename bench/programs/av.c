/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The cost of a known peer: inserts a million addresses into the address
 * vector of an open endpoint and prints bytes and nanoseconds for each.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"
#include "process.h"

static void ask_v6(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN6;
}

static void ask_v4(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN;
}

/* Peers as a cluster has them: nodes in sequence, some ports on each. */
static void *addresses(bool v6, unsigned count, size_t *size)
{
	*size = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	void *all = calloc(count, *size);

	REQUIRE(all);
	for (unsigned i = 0; i < count; i++) {
		uint16_t port = htons((uint16_t)(20000 + i % 64));
		uint32_t node = htonl(0x0a000001 + i / 64);

		if (v6) {
			struct sockaddr_in6 *a = (struct sockaddr_in6 *)all + i;

			a->sin6_family = AF_INET6;
			a->sin6_port = port;
			inet_pton(AF_INET6, "fd00::", &a->sin6_addr);
			memcpy(&a->sin6_addr.s6_addr[12], &node, 4);
		} else {
			struct sockaddr_in *a = (struct sockaddr_in *)all + i;

			a->sin_family = AF_INET;
			a->sin_port = port;
			a->sin_addr.s_addr = node;
		}
	}
	return all;
}

int main(int argc, char **argv)
{
	bool v6 = false;
	unsigned count = 1000000, batch = 1000;
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED | FI_SOURCE };
	struct ct_peer peer;
	fi_addr_t *out;
	double before, start, took;
	char *all;
	size_t size;
	int c;

	while ((c = getopt(argc, argv, "6n:b:p:")) != -1) {
		switch (c) {
		case '6':
			v6 = true;
			break;
		case 'n':
			count = (unsigned)atoi(optarg);
			break;
		case 'b':
			batch = (unsigned)atoi(optarg);
			break;
		case 'p':
			ct_opt.provider = optarg;
			break;
		default:
			fprintf(stderr, "usage: %s [-6] [-n addresses] "
				"[-b per call] [-p provider]\n", argv[0]);
			return 1;
		}
	}
	ct_opt.type = FI_EP_RDM;
	ct_opt.source = v6 ? "::1" : "127.0.0.1";
	spec.av_type = FI_AV_TABLE;
	spec.hint = v6 ? ask_v6 : ask_v4;
	all = addresses(v6, count, &size);
	out = malloc(count * sizeof(*out));
	REQUIRE(out);
	memset(out, 0xff, count * sizeof(*out));
	ct_open_single(&peer, &spec);

	before = ct_resident();
	start = ct_now();
	for (unsigned i = 0; i < count; i += batch) {
		unsigned n = count - i < batch ? count - i : batch;

		EXPECT(fi_av_insert(peer.av, all + (size_t)i * size, n, out + i,
				    0, NULL), n);
	}
	took = ct_now() - start;
	printf("{\"bench\": \"av\", \"family\": \"%s\", \"addresses\": %u, "
	       "\"bytes_each\": %.1f, \"nsec_each\": %.1f}\n",
	       v6 ? "IPv6" : "IPv4", count, ((double)ct_resident() - before) / count,
	       took * 1e9 / count);
	ct_close_peer(&peer);
	free(out);
	free(all);
	return 0;
}
