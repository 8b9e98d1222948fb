/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Takes over the log, makes the library write messages, and releases the log.
 * Prints each message as "mine <provider> <message>".
 */
#include <stdio.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

static int my_enabled(const struct fi_provider *prov, enum fi_log_level level,
		      enum fi_log_subsys subsys, uint64_t flags)
{
	(void) prov;
	(void) subsys;
	return level <= FI_LOG_INFO && !(flags & FI_LOG_PROV_FILTERED);
}

static int my_ready(const struct fi_provider *prov, enum fi_log_level level,
		    enum fi_log_subsys subsys, uint64_t flags, uint64_t *showtime)
{
	(void) showtime;
	return my_enabled(prov, level, subsys, flags);
}

static void my_log(const struct fi_provider *prov, enum fi_log_level level,
		   enum fi_log_subsys subsys, const char *func, int line, const char *msg)
{
	(void) level;
	(void) subsys;
	(void) func;
	(void) line;
	printf("mine %s %s", prov->name, msg);
}

static int ask(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	hints->fabric_attr->prov_name = strdup("nobody");
	if (fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info) != -FI_ENODATA)
		return 1;
	fi_freeinfo(hints);
	return 0;
}

int main(void)
{
	struct fi_ops_log ops = { .enabled = my_enabled, .ready = my_ready, .log = my_log };
	struct fid_logging logging = { .ops = &ops };
	struct fi_provider someone = { .name = "someone" };
	struct fid *again;
	uint64_t showtime = 0;
	int ret;

	/* Before anything else, no application has taken over the log. */
	if (fi_log_enabled(&someone, FI_LOG_WARN, FI_LOG_CORE))
		return 1;
	ret = fi_import_log(fi_version(), 0, &logging);
	if (ret) {
		printf("fi_import_log: %s\n", fi_strerror(-ret));
		return 1;
	}
	if (fi_open(fi_version(), "logging", NULL, 0, 0, &again, NULL) != -FI_EALREADY)
		return 2;
	if (ask())
		return 3;
	FI_WARN(&someone, FI_LOG_EP_DATA, "says %s %d\n", "something", 5);
	if (!fi_log_ready(&someone, FI_LOG_WARN, FI_LOG_CORE, &showtime))
		return 4;
	if (fi_close(&logging.fid))
		return 5;
	printf("given back\n");
	FI_WARN(&someone, FI_LOG_EP_DATA, "says no more\n");
	if (ask())
		return 6;
	ret = fi_import_log(fi_version(), 0, &logging);
	if (ret)
		return 7;
	return fi_close(&logging.fid);
}
