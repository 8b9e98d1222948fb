/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * One row of the table of calls:
 *
 *	ROW(BOTH, "cq/unknown-format", "fi_cq(3)", -FI_EINVAL,
 *	    open_cq(.format = 77))
 *
 * says for which endpoint types it is, its name, the page that says what the
 * call returns, the result, and the call. Where the page only says that a call
 * is wrong, the result is REFUSED, any error. What the page of a provider says
 * is for that provider only. With CARRIED_OUT in place of a page the result is
 * that of the C library. docs/refusals.md has all rows whose results differ
 * from the C library's.
 *
 * Objects come from fixture.h, which opens them when they are first asked for;
 * a row has its process to itself and closes nothing that it does not test.
 */
#ifndef CALLS_ROW_H
#define CALLS_ROW_H

#include <limits.h>

#include "check.h"
#include "fixture.h"

#define MSG CT_MSG
#define RDM CT_RDM
#define BOTH CT_BOTH

/* Results: any error, and any result. */
#define REFUSED LONG_MIN
#define ANYTHING LONG_MAX

/* Instead of a page: calls that the C library carries out are carried out,
 * whatever the pages let a provider refuse. */
#define CARRIED_OUT "the C library"

/* The manual knows no such thing, whatever is added to it. */
#define UNKNOWN_FLAG (1ULL << 15)
#define UNKNOWN_NUMBER 0x7654321

/* A row that only requires that the call returns: its result is in the
 * comparison with the C library (docs/refusals.md). */
#define COMPARED(types, name, ...)					\
	ROW(types, name, CARRIED_OUT, ANYTHING, __VA_ARGS__)

/* A step before the call of a row, which has to succeed. */
#define FIRST(call) ({ OK(call); 0; })

void calls_add(const struct ct_test *row);
void calls_begin(const char *page);
void calls_judge(const char *file, int line, const char *page,
		 const char *call, long got, long want);

#define ROW(types, name, page, want, ...)				\
	CALLS_ROW_(__COUNTER__, types, name, page, want, #__VA_ARGS__,	\
		   __VA_ARGS__)
#define CALLS_ROW_(number, ...) CALLS_ROW(number, __VA_ARGS__)
#define CALLS_ROW(number, types, name, page, want, text, ...)		\
	static void run_##number(void)					\
	{								\
		calls_begin(page);					\
		calls_judge(__FILE__, __LINE__, page, text,		\
			    (long)(__VA_ARGS__), want);			\
	}								\
	__attribute__((constructor))					\
	static void add_##number(void)					\
	{								\
		calls_add(&(struct ct_test) {				\
			name, run_##number, types });			\
	}

#endif
