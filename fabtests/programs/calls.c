/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A table of calls, each with the result that the manual pages require. The
 * rows are in the files of calls/, by the class of the object; each runs in a
 * process of its own.
 */
#include "calls/row.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 2048 };

static struct ct_test rows[MOST_ROWS];
static size_t count;

void calls_add(const struct ct_test *row)
{
	if (count < MOST_ROWS)
		rows[count] = *row;
	count++;
}

void calls_begin(const char *page)
{
	const char *provider = ct_opt.provider ? ct_opt.provider : "tcp";

	if (!strcmp(page, "fi_tcp(7)") && strncmp(provider, "tcp", 3))
		SKIP("%s is not about %s", page, provider);
}

/* The actual or the required result of a call, as text. */
static const char *result(long value, char *text, size_t size)
{
	if (value == REFUSED)
		snprintf(text, size, "an error");
	else if (value < 0)
		snprintf(text, size, "%ld (%s)", value,
			 fi_strerror((int)-value));
	else
		snprintf(text, size, "%ld", value);
	return text;
}

void calls_judge(const char *file, int line, const char *page,
		 const char *call, long got, long want)
{
	char is[96], should[96];

	if (ct_opt.values) {
		ct_value("%ld", got);
		return;
	}
	if (want == ANYTHING || (want == REFUSED ? got < 0 : got == want))
		return;
	ct_fail(file, line, "%.200s: %s, by %s it is %s", call,
		result(got, is, sizeof(is)), page,
		result(want, should, sizeof(should)));
}

int main(int argc, char **argv)
{
	if (count > MOST_ROWS) {
		fprintf(stderr, "more than %d rows\n", MOST_ROWS);
		return 1;
	}
	return ct_main(argc, argv, rows, count);
}
