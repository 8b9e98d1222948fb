/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Test tables, checks and their report.
 *
 * A program is a table of tests and a call of ct_main. Every test runs in a
 * child process of its own, so that a crash or a hang is one failed test and
 * not the end of the program. Each test, and each named check inside a test,
 * prints one line: "ok", "skip", "known" or "FAIL", its identity
 * (program/endpoint-type/test[/check]) and, where useful, a reason.
 */
#ifndef CT_CHECK_H
#define CT_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

enum {
	CT_MSG = 1,		/* runs with -e msg */
	CT_RDM = 2,		/* runs with -e rdm, and with -e dgram where that is asked for */
	CT_DGRAM = 8,		/* runs with -e dgram */
	CT_BOTH = CT_MSG | CT_RDM,
	CT_SLOW = 4,		/* gets ten times the usual time */
	CT_LASTING = 16,	/* goes on for CT_SECONDS, and may take twice that in addition */
};

struct ct_test {
	const char *name;
	void (*run)(void);
	int flags;
};

struct ct_options {
	const char *provider;		/* NULL: whatever fi_getinfo finds */
	const char *source;		/* node to open endpoints on; NULL: the provider's choice; in
					 * tests an address of their own, unless -a names one */
	enum fi_ep_type type;		/* FI_EP_MSG, FI_EP_RDM or FI_EP_DGRAM */
	bool valgrind;			/* everything is slow: scale counts down */
	bool values;			/* print results, do not judge */
};

extern struct ct_options ct_opt;

/* The test that runs, an element of the table. */
extern const struct ct_test *ct_running;

/* Prints "value", the identity of the test, and the text. */
void ct_value(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/* Runs the tests that the command line selects; the program's exit status. */
int ct_main(int argc, char **argv, const struct ct_test *tests, size_t count);

#define CT_MAIN(tests)							\
	int main(int argc, char **argv)					\
	{								\
		return ct_main(argc, argv, tests,			\
			       sizeof(tests) / sizeof((tests)[0]));	\
	}

/*
 * For programs with a main of their own: a failed check prints to standard
 * error and ends the process with status 1, a skip with status 2.
 */

/* Seconds that any single wait may take before it counts as a hang. */
double ct_patience(void);

/* The same in milliseconds. */
int ct_patience_ms(void);
double ct_now(void);			/* monotonic, seconds */

/* Scales a repetition count down if execution is simulated. */
int ct_times(int count);

/* Remembers the line that calls into the support library, for its failures. */
void ct_here(const char *file, int line);
#define CT_HERE(function, ...)						\
	(ct_here(__FILE__, __LINE__), (function)(__VA_ARGS__))

void ct_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void ct_skip(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
bool ct_check(const char *file, int line, bool ok, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The rest of the test makes no sense if this does not hold. */
#define REQUIRE(cond)							\
	do {								\
		if (!(cond))						\
			ct_fail(__FILE__, __LINE__, "%s", #cond);	\
	} while (0)

/* A call that has to return 0. */
#define OK(call)							\
	do {								\
		long ct_rc_ = (long)(call);				\
		if (ct_rc_)						\
			ct_fail(__FILE__, __LINE__, "%s: %ld (%s)",	\
				#call, ct_rc_, fi_strerror((int)-ct_rc_)); \
	} while (0)

/* A call that has to return exactly this value. */
#define EXPECT(call, want)						\
	do {								\
		long ct_rc_ = (long)(call), ct_want_ = (long)(want);	\
		if (ct_rc_ != ct_want_)					\
			ct_fail(__FILE__, __LINE__,			\
				"%s: %ld (%s), expected %ld (%s)",	\
				#call, ct_rc_,				\
				ct_rc_ < 0 ? fi_strerror((int)-ct_rc_) : "", \
				ct_want_, #want);			\
	} while (0)

/* A named check of its own; the test continues when it fails. */
#define CHECK(cond, ...) ct_check(__FILE__, __LINE__, (cond), __VA_ARGS__)

#define SKIP(...) ct_skip(__VA_ARGS__)

#endif
