/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The state of the process that does not belong to a library stays as the
 * program has set it: errno of calls that succeed, the locale, signals and
 * their mask, umask, the working directory, the environment, the standard
 * streams, the floating-point environment.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "everything.h"
#include "transfer.h"
#include "wait.h"

extern char **environ;

struct state {
	struct sigaction actions[NSIG];
	sigset_t mask;
	mode_t umask;
	char folder[4096], locale[1024];
	locale_t thread_locale;
	int flags[3], rounding;
	struct rlimit limits[RLIM_NLIMITS];
	char **environ;
	size_t variables;
};

static void look(struct state *state)
{
	const char *locale = setlocale(LC_ALL, NULL);

	memset(state, 0, sizeof(*state));
	for (int i = 1; i < NSIG; i++)
		sigaction(i, NULL, &state->actions[i]);
	pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
	state->umask = umask(0);
	umask(state->umask);
	REQUIRE(getcwd(state->folder, sizeof(state->folder)));
	strncpy(state->locale, locale ? locale : "", sizeof(state->locale) - 1);
	state->thread_locale = uselocale(NULL);
	for (int i = 0; i < 3; i++)
		state->flags[i] = fcntl(i, F_GETFL);
	state->rounding = fegetround();
	for (int i = 0; i < RLIM_NLIMITS; i++)
		getrlimit((__rlimit_resource_t)i, &state->limits[i]);
	state->environ = environ;
	for (char **at = environ; *at; at++)
		state->variables += strlen(*at) + 1;
}

static void compare(const struct state *a, const struct state *b)
{
	bool same = true;

	for (int i = 1; i < NSIG; i++)
		same &= a->actions[i].sa_handler == b->actions[i].sa_handler &&
			a->actions[i].sa_flags == b->actions[i].sa_flags;
	CHECK(same, "signal-handlers");
	CHECK(!memcmp(&a->mask, &b->mask, sizeof(a->mask)), "signal-mask");
	CHECK(a->umask == b->umask, "umask");
	CHECK(!strcmp(a->folder, b->folder), "working-directory");
	CHECK(!strcmp(a->locale, b->locale), "locale");
	CHECK(a->thread_locale == b->thread_locale, "thread-locale");
	CHECK(!memcmp(a->flags, b->flags, sizeof(a->flags)),
	      "standard-streams");
	CHECK(a->rounding == b->rounding, "rounding");
	CHECK(!memcmp(a->limits, b->limits, sizeof(a->limits)),
	      "resource-limits");
	CHECK(a->environ == b->environ && a->variables == b->variables,
	      "environment");
}

/* Everything that the provider offers, with unusual settings. */
static void process(void)
{
	struct ct_spec spec = ct_everything_spec(FI_THREAD_SAFE,
						 FI_PROGRESS_AUTO);
	static struct state before, after;

	if (ct_opt.type == FI_EP_DGRAM)
		SKIP("not with datagrams");
	setenv("FI_LOG_LEVEL", "warn", 1);
	REQUIRE(setlocale(LC_ALL, "C.UTF-8"));
	umask(027);
	fesetround(FE_UPWARD);
	look(&before);
	ct_everything(&spec, (struct ct_everything){ .waits = true });
	look(&after);
	compare(&before, &after);
}

/* A call that succeeds, and whether errno is what it was. */
#define KEEPS(name, ...)						\
	do {								\
		errno = 4242;						\
		__VA_ARGS__;						\
		CHECK(errno == 4242, "%s", name);			\
	} while (0)

static void errno_of_getinfo(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *hints = ct_hints(&spec), *info = NULL, *copy = NULL;
	int value = FI_EP_RDM;
	char text[4096];

	setenv("FI_LOG_LEVEL", "warn", 1);
	KEEPS("fi_getinfo-first",
	      OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info)));
	fi_freeinfo(info);
	KEEPS("fi_getinfo",
	      OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info)));
	KEEPS("fi_dupinfo", copy = fi_dupinfo(info));
	KEEPS("fi_freeinfo", fi_freeinfo(copy));
	KEEPS("fi_tostr_r", fi_tostr_r(text, sizeof(text), info, FI_TYPE_INFO));
	KEEPS("fi_tostr", fi_tostr(&value, FI_TYPE_EP_TYPE));
	KEEPS("fi_strerror", fi_strerror(FI_EAVAIL));
	KEEPS("fi_version", fi_version());
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* Calls on the path of data. Objects that are opened and closed may leave any
 * value, as the functions of the standard may. */
static void errno_of_data(void)
{
	struct ct_spec spec = { .wait = FI_WAIT_FD };
	struct fi_context2 rx, tx;
	struct fi_cq_tagged_entry entry;
	unsigned out = 1, in = 0;
	struct ct_pair pair;
	ssize_t got;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	KEEPS("fi_cq_read-empty",
	      EXPECT(fi_cq_read(pair.b.rx.fid, &entry, 1), -FI_EAGAIN));
	KEEPS("fi_recv", OK(fi_recv(pair.b.ep, &in, sizeof(in), NULL,
				    FI_ADDR_UNSPEC, &rx)));
	KEEPS("fi_send", OK(fi_send(pair.a.ep, &out, sizeof(out), NULL,
				    pair.a.to, &tx)));
	KEEPS("fi_cq_read",
	      do {
		      got = fi_cq_read(pair.b.rx.fid, &entry, 1);
		      if (got == -FI_EAGAIN)
			      ct_nudge(&pair.a);
	      } while (got == -FI_EAGAIN));
	REQUIRE(got == 1);
	KEEPS("fi_cq_sread-empty",
	      EXPECT(fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, 1), -FI_EAGAIN));
	ct_done(&pair.a, &pair.a.tx, &tx);
	ct_close_pair(&pair);
}

/* Texts do not depend on the program's locale: one whose decimal separator is a
 * comma and whose digits are grouped, where the system has one. */
static void other_locale(void)
{
	static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8" };
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec);
	static char plain[1 << 16], other[1 << 16];

	REQUIRE(fi_tostr_r(plain, sizeof(plain), info, FI_TYPE_INFO));
	for (size_t i = 0; i < 3; i++)
		if (setlocale(LC_ALL, names[i]))
			break;
	REQUIRE(fi_tostr_r(other, sizeof(other), info, FI_TYPE_INFO));
	CHECK(!strcmp(plain, other), "fi_tostr");
	CHECK(!strcmp(fi_strerror(FI_EAVAIL), "Error available"),
	      "fi_strerror");
	fi_freeinfo(info);
}

static const struct ct_test tests[] = {
	{ "process", process, CT_BOTH },
	{ "errno-of-getinfo", errno_of_getinfo, CT_BOTH },
	{ "errno-of-data", errno_of_data, CT_BOTH },
	{ "other-locale", other_locale, CT_BOTH },
};

CT_MAIN(tests)
