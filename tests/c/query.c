/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Prints what the library answers.
 *
 *   query providers                       every provider: name and version
 *   query info [key=value ...]            every result: provider, domain, fabric
 *       keys: prov, domain, fabric, type (msg, dgram, rdm), version, flags,
 *       times (how often to ask), first (a provider to ask for before)
 *   query open PROVIDER                   opens and closes that fabric
 *   query params                          every parameter, as NAME=value
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

static int fail(const char *what, int ret)
{
	printf("%s: %s\n", what, fi_strerror(-ret));
	return 1;
}

static int print_providers(void)
{
	struct fi_info *list, *each;
	int ret = fi_getinfo(fi_version(), NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list);

	if (ret)
		return fail("fi_getinfo", ret);
	for (each = list; each; each = each->next)
		printf("%s %d.%d\n", each->fabric_attr->prov_name,
		       FI_MAJOR(each->fabric_attr->prov_version),
		       FI_MINOR(each->fabric_attr->prov_version));
	fi_freeinfo(list);
	return 0;
}

static void ask_first(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *list;

	hints->fabric_attr->prov_name = strdup(provider);
	if (!fi_getinfo(fi_version(), NULL, NULL, 0, hints, &list))
		fi_freeinfo(list);
	fi_freeinfo(hints);
}

static int print_info(int count, char **settings)
{
	struct fi_info *hints = fi_allocinfo(), *list, *each;
	uint32_t version = fi_version();
	uint64_t flags = 0;
	int i, ret, times = 1;

	for (i = 0; i < count; i++) {
		char *value = strchr(settings[i], '=');

		if (!value)
			return 2;
		*value++ = '\0';
		if (!strcmp(settings[i], "prov"))
			hints->fabric_attr->prov_name = strdup(value);
		else if (!strcmp(settings[i], "domain"))
			hints->domain_attr->name = strdup(value);
		else if (!strcmp(settings[i], "fabric"))
			hints->fabric_attr->name = strdup(value);
		else if (!strcmp(settings[i], "type"))
			hints->ep_attr->type = !strcmp(value, "msg") ? FI_EP_MSG :
				!strcmp(value, "dgram") ? FI_EP_DGRAM : FI_EP_RDM;
		else if (!strcmp(settings[i], "version"))
			version = strtoul(value, NULL, 0);
		else if (!strcmp(settings[i], "flags"))
			flags = strtoull(value, NULL, 0);
		else if (!strcmp(settings[i], "times"))
			times = atoi(value);
		else if (!strcmp(settings[i], "first"))
			ask_first(value);
		else
			return 2;
	}
	do {
		ret = fi_getinfo(version, NULL, NULL, flags, hints, &list);
		if (!ret && times > 1)
			fi_freeinfo(list);
	} while (--times > 0);
	fi_freeinfo(hints);
	if (ret)
		return fail("fi_getinfo", ret);
	for (each = list; each; each = each->next)
		printf("%s %s %s\n", each->fabric_attr->prov_name, each->domain_attr->name,
		       each->fabric_attr->name);
	fi_freeinfo(list);
	return 0;
}

static int open_fabric(char *provider)
{
	struct fi_fabric_attr attr = {
		.name = "any",
		.prov_name = provider,
		.api_version = FI_VERSION(1, 18),
	};
	struct fid_fabric *fabric;
	int context, ret = fi_fabric(&attr, &fabric, &context);

	if (ret)
		return fail("fi_fabric", ret);
	printf("context %s, interface %d.%d\n", fabric->fid.context == &context ? "kept" : "lost",
	       FI_MAJOR(fabric->api_version), FI_MINOR(fabric->api_version));
	return fi_close(&fabric->fid);
}

static int print_params(void)
{
	struct fi_param *params;
	int count, i, ret = fi_getparams(&params, &count);

	if (ret)
		return fail("fi_getparams", ret);
	for (i = 0; i < count; i++)
		printf("%s=%s: %s\n", params[i].name, params[i].value ? params[i].value : "",
		       params[i].help_string);
	fi_freeparams(params);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "providers"))
		return print_providers();
	if (argc >= 2 && !strcmp(argv[1], "info"))
		return print_info(argc - 2, argv + 2);
	if (argc == 3 && !strcmp(argv[1], "open"))
		return open_fabric(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "params"))
		return print_params();
	return 2;
}
