/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * One send of 8 bytes, and one read of its completion, many times: `run` here
 * counts their instructions.
 */
#include "../ends.h"

static struct place place;
static struct end a, b;

__attribute__((noinline)) ssize_t counted_send(void)
{
	return fi_send(a.ep, a.memory, 8, a.desc, 0, &a);
}

__attribute__((noinline)) ssize_t counted_read(struct fi_cq_data_entry *entry)
{
	return fi_cq_read(a.tx, entry, 1);
}

/* Each read finds the completion there. */
static void count(void)
{
	enum { MESSAGES = 300 };
	struct fi_cq_data_entry entry;
	int i;

	open_place(&place, NULL);
	connect_ends(&place, NULL, &a, &b, NULL);
	for (i = 0; i < MESSAGES; i++) {
		double until;

		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
		EXPECT(counted_send(), 0);
		done(b.rx, &b);
		until = ct_now() + 0.03;
		while (ct_now() < until)
			;
		EXPECT(counted_read(&entry), 1);
	}
	close_end(&a);
	close_end(&b);
	close_place(&place);
}

static const struct ct_test tests[] = {
	{ "count", count, CT_MSG | CT_SLOW },
};

CT_MAIN(tests)
