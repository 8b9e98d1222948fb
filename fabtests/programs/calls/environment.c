/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Users' settings in the environment, and messages in the log. A row sets a
 * variable before the first call that reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "row.h"

static int with_variable(const char *name, const char *value)
{
	struct fi_info *hints = ct_hints(&spec), *found = NULL;

	REQUIRE(!setenv(name, value, 1));
	return fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &found);
}

/* fi_inject's limit with a value of FI_TCP_MAX_INJECT. */
static long inject_size(const char *value)
{
	REQUIRE(!setenv("FI_TCP_MAX_INJECT", value, 1));
	return (long)info()->tx_attr->inject_size;
}

/* Bytes pass between two endpoints. */
static int works_with(const char *name, const char *value)
{
	REQUIRE(!setenv(name, value, 1));
	pair();
	return 0;
}

ROW(BOTH, "environment/interface-unknown", "fi_tcp(7)", 0,
    with_variable("FI_TCP_IFACE", "no_such_interface"))
ROW(BOTH, "environment/interface-empty", "fi_tcp(7)", 0,
    with_variable("FI_TCP_IFACE", ""))
ROW(BOTH, "environment/interface", "fi_tcp(7)", 0,
    with_variable("FI_TCP_IFACE", "lo"))
ROW(BOTH, "environment/inject", "fi_tcp(7)", 256, inject_size("256"))
ROW(BOTH, "environment/inject-below", "fi_tcp(7)", 4096, inject_size("64"))
ROW(BOTH, "environment/inject-nonsense", "fi_tcp(7)", 4096,
    inject_size("many"))
ROW(BOTH, "environment/no-prefetch", "fi_tcp(7)", 0,
    works_with("FI_TCP_PREFETCH_RBUF_SIZE", "0"))
ROW(BOTH, "environment/no-staging", "fi_tcp(7)", 0,
    works_with("FI_TCP_STAGING_SBUF_SIZE", "0"))

/* Whether the log of the call contains the text. */
static bool logged(int (*call)(void), const char *text)
{
	static char log[65536];
	FILE *file = tmpfile();
	int own = dup(STDERR_FILENO);
	size_t len;

	REQUIRE(file && own >= 0);
	REQUIRE(!setenv("FI_LOG_LEVEL", "warn", 1));
	REQUIRE(dup2(fileno(file), STDERR_FILENO) >= 0);
	call();
	REQUIRE(dup2(own, STDERR_FILENO) >= 0);
	rewind(file);
	len = fread(log, 1, sizeof(log) - 1, file);
	log[len] = '\0';
	return strstr(log, text);
}

static int hints_for_rxm(void)
{
	struct fi_info *hints = ct_hints(&spec), *found = NULL;

	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
	return fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &found);
}

static int rxm_by_variable(void)
{
	struct fi_info *hints = ct_hints(&spec), *found = NULL;

	/* Only the variable names it. */
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	hints->addr_format = FI_FORMAT_UNSPEC;
	REQUIRE(!setenv("FI_PROVIDER", "tcp;ofi_rxm", 1));
	return fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &found);
}

static int too_large(void)
{
	struct fi_info *changed = fi_dupinfo(info());
	struct fid_ep *ep;

	changed->tx_attr->size = SIZE_MAX;
	return fi_endpoint(domain(), changed, &ep, NULL);
}

ROW(RDM, "layers/rxm-in-hints", "fi_rxm(7)", 0, hints_for_rxm())
ROW(RDM, "layers/rxm-in-environment", "fi_rxm(7)", 0, rxm_by_variable())
ROW(BOTH, "log/reason-of-refusal", "fi_tcp(7)", true,
    logged(too_large, "tx_attr->size"))
