/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Names of nodes: fi_getinfo(3) asks the system for each once, since a name
 * server that does not answer takes seconds. The program's getaddrinfo takes
 * the place of the system's.
 */
#define _GNU_SOURCE
#include <netdb.h>
#include <string.h>

#include "check.h"
#include "peer.h"

static int asked, outcome;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **list)
{
	(void)service;
	(void)hints;
	(void)list;
	if (node && !strcmp(node, "node.example"))
		asked++;
	return outcome;
}

static int ask(uint32_t format, uint64_t flags)
{
	struct ct_spec spec = { 0 };
	struct fi_info *hints = ct_hints(&spec), *info = NULL;
	int ret;

	hints->addr_format = format;
	asked = 0;
	ret = fi_getinfo(CT_API_VERSION, "node.example", "7471", flags, hints, &info);
	fi_freeinfo(hints);
	fi_freeinfo(info);
	return ret;
}

static void asks_once(int error)
{
	static const uint32_t formats[] = { FI_FORMAT_UNSPEC, FI_SOCKADDR_IN, FI_SOCKADDR_IN6 };
	static const uint64_t flags[] = { 0, FI_SOURCE };

	outcome = error;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		for (size_t j = 0; j < sizeof(flags) / sizeof(flags[0]); j++) {
			EXPECT(ask(formats[i], flags[j]), -FI_ENODATA);
			CHECK(asked == 1, "format-%zu-flags-%zu", i, j);
		}
}

/* There is no such node. */
static void unknown(void)
{
	asks_once(EAI_NONAME);
}

/* No name server answers. */
static void unanswered(void)
{
	asks_once(EAI_AGAIN);
}

static const struct ct_test tests[] = {
	{ "unknown", unknown, CT_BOTH },
	{ "unanswered", unanswered, CT_BOTH },
};

CT_MAIN(tests)
