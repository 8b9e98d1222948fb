/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Parameters of providers and logging, as a provider of its own uses them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "check.h"

static struct fi_provider self = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(1, 5),
	.name = "cttest",
};

/* Environment values are read at the first use: set them before. */
static void define_all(void)
{
	OK(fi_param_define(&self, "text", FI_PARAM_STRING, "some %s", "text"));
	OK(fi_param_define(&self, "number", FI_PARAM_INT, "a number"));
	OK(fi_param_define(&self, "yes", FI_PARAM_BOOL, "a switch"));
	OK(fi_param_define(&self, "no", FI_PARAM_BOOL, "a switch"));
	OK(fi_param_define(&self, "size", FI_PARAM_SIZE_T, "a size"));
}

static void values(void)
{
	char *text = NULL;
	int number = 0, yes = 9, no = 9;
	size_t size = 0;

	setenv("FI_CTTEST_TEXT", "hello", 1);
	setenv("FI_CTTEST_NUMBER", "-17", 1);
	setenv("FI_CTTEST_YES", "yes", 1);
	setenv("FI_CTTEST_NO", "off", 1);
	setenv("FI_CTTEST_SIZE", "123456789012", 1);
	define_all();
	OK(fi_param_get_str(&self, "text", &text));
	CHECK(text && !strcmp(text, "hello"), "string");
	OK(fi_param_get_int(&self, "number", &number));
	CHECK(number == -17, "int");
	OK(fi_param_get_bool(&self, "yes", &yes));
	CHECK(yes == 1, "bool-yes");
	OK(fi_param_get_bool(&self, "no", &no));
	CHECK(no == 0, "bool-no");
	OK(fi_param_get_size_t(&self, "size", &size));
	CHECK(size == 123456789012UL, "size");
}

static void booleans(void)
{
	static const struct {
		const char *text;
		int want;
	} cases[] = {
		{ "1", 1 }, { "yes", 1 }, { "true", 1 }, { "on", 1 },
		{ "0", 0 }, { "no", 0 }, { "false", 0 }, { "off", 0 },
		{ "YES", 1 }, { "False", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char name[16], variable[32];
		int value = 9;

		snprintf(name, sizeof(name), "b%zu", i);
		snprintf(variable, sizeof(variable), "FI_CTTEST_B%zu", i);
		setenv(variable, cases[i].text, 1);
		OK(fi_param_define(&self, name, FI_PARAM_BOOL, "a switch"));
		CHECK(!fi_param_get_bool(&self, name, &value) &&
		      value == cases[i].want, "%s", cases[i].text);
	}
}

static void missing(void)
{
	int number = 42;

	unsetenv("FI_CTTEST_NUMBER");
	define_all();
	CHECK(fi_param_get_int(&self, "number", &number) == -FI_ENODATA,
	      "not-set");
	CHECK(number == 42, "not-set-unchanged");
	CHECK(fi_param_get_int(&self, "never-defined", &number) == -FI_ENOENT,
	      "not-defined");
	CHECK(number == 42, "not-defined-unchanged");
}

static void invalid(void)
{
	int number = 42, flag = 42;
	size_t size = 42;

	setenv("FI_CTTEST_NUMBER", "seventeen", 1);
	setenv("FI_CTTEST_YES", "perhaps", 1);
	setenv("FI_CTTEST_SIZE", "-1x", 1);
	define_all();
	CHECK(fi_param_get_int(&self, "number", &number) == -FI_EINVAL,
	      "int");
	CHECK(fi_param_get_bool(&self, "yes", &flag) == -FI_EINVAL, "bool");
	CHECK(fi_param_get_size_t(&self, "size", &size) == -FI_EINVAL, "size");
	CHECK(number == 42 && flag == 42 && size == 42, "unchanged");
}

static void arguments(void)
{
	CHECK(fi_param_define(&self, NULL, FI_PARAM_INT, "help") == -FI_EINVAL,
	      "no-name");
	CHECK(fi_param_define(&self, "a", FI_PARAM_INT, NULL) == -FI_EINVAL,
	      "no-help");
	/* A name of no letters is one. */
	CHECK(!fi_param_define(&self, "", FI_PARAM_INT, "help"), "empty-name");
}

static bool has(const struct fi_param *params, int count, const char *name,
		enum fi_param_type type, const char *value)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(params[i].name, name))
			return params[i].type == type &&
			       params[i].help_string &&
			       *params[i].help_string &&
			       (value ? params[i].value &&
					!strcmp(params[i].value, value)
				      : !params[i].value);
	return false;
}

static void list(void)
{
	struct fi_param *params = NULL;
	int count = 0;

	setenv("FI_TCP_IFACE", "lo", 1);
	unsetenv("FI_TCP_PORT_LOW_RANGE");
	OK(fi_getparams(&params, &count));
	REQUIRE(params && count > 5);
	CHECK(has(params, count, "FI_PROVIDER", FI_PARAM_STRING,
		  getenv("FI_PROVIDER")), "the-library's-own");
	if (ct_opt.provider && !strcmp(ct_opt.provider, "tcp")) {
		CHECK(has(params, count, "FI_TCP_IFACE", FI_PARAM_STRING,
			  "lo"), "set");
		CHECK(has(params, count, "FI_TCP_PORT_LOW_RANGE", FI_PARAM_INT,
			  NULL), "not-set");
	}
	for (int i = 0; i < count; i++)
		REQUIRE(params[i].name && !strncmp(params[i].name, "FI_", 3));
	fi_freeparams(params);
}

/* Runs with standard error in a file and returns its contents. */
static void capture(void (*run)(void), char *out, size_t size)
{
	char path[] = "/tmp/ct-param-XXXXXX";
	int fd = mkstemp(path), saved = dup(STDERR_FILENO);
	ssize_t got;

	REQUIRE(fd >= 0 && saved >= 0);
	unlink(path);
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	run();
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	lseek(fd, 0, SEEK_SET);
	got = read(fd, out, size - 1);
	REQUIRE(got >= 0);
	out[got] = '\0';
	close(fd);
	close(saved);
}

static void log_two(void)
{
	FI_WARN(&self, FI_LOG_CORE, "a warning %d\n", 11);
	FI_INFO(&self, FI_LOG_CORE, "an information %d\n", 22);
}

static void log_levels(void)
{
	char text[4096];
	int count;
	struct fi_param *params;

	setenv("FI_LOG_LEVEL", "warn", 1);
	OK(fi_getparams(&params, &count));
	fi_freeparams(params);
	CHECK(fi_log_enabled(&self, FI_LOG_WARN, FI_LOG_CORE), "warn-enabled");
	CHECK(!fi_log_enabled(&self, FI_LOG_INFO, FI_LOG_CORE),
	      "info-disabled");
	capture(log_two, text, sizeof(text));
	CHECK(strstr(text, "a warning 11") != NULL, "warn-written");
	CHECK(!strstr(text, "an information"), "info-not-written");
	CHECK(strstr(text, "libfabric:") && strstr(text, "cttest") &&
	      strstr(text, "log_two"), "prefix");
}

static void log_subsystems(void)
{
	struct fi_param *params;
	int count;

	setenv("FI_LOG_LEVEL", "info", 1);
	setenv("FI_LOG_SUBSYS", "cq,av", 1);
	OK(fi_getparams(&params, &count));
	fi_freeparams(params);
	CHECK(fi_log_enabled(&self, FI_LOG_INFO, FI_LOG_CQ), "named");
	CHECK(!fi_log_enabled(&self, FI_LOG_INFO, FI_LOG_CORE), "not-named");
}

static const struct ct_test tests[] = {
	{ "values", values, CT_BOTH },
	{ "booleans", booleans, CT_BOTH },
	{ "missing", missing, CT_BOTH },
	{ "invalid", invalid, CT_BOTH },
	{ "arguments", arguments, CT_BOTH },
	{ "list", list, CT_BOTH },
	{ "log-levels", log_levels, CT_BOTH },
	{ "log-subsystems", log_subsystems, CT_BOTH },
};

CT_MAIN(tests)
