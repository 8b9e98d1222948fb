/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "form.h"

void begin(struct two *two, const struct form *form, uint64_t caps)
{
	static const enum ct_kind senders[] = {
		[CT_PLAIN] = CT_PLAIN, [CT_SHARED] = CT_PLAIN, [CT_SCALABLE] = CT_SCALABLE,
		[CT_SCALABLE_SHARED] = CT_SCALABLE_SHARED,
		[CT_SCALABLE_SEVERAL] = CT_SCALABLE_SHARED,
		[CT_SCALABLE_THROUGH] = CT_SCALABLE_SHARED,
	};
	struct ct_setup to = form->setup;
	struct ct_setup from = { .kind = senders[to.kind], .count = to.count };

	to.spec.caps |= caps;
	from.spec.caps = caps & ~FI_MULTI_RECV;
	two->accepts = form->accepts;
	OK(ct_open_side(&two->a, &from));
	OK(ct_open_side(&two->b, &to));
}

void meet(struct two *two)
{
	if (two->accepts)
		ct_introduce(&two->b, &two->a);
	else
		ct_introduce(&two->a, &two->b);
}

void open_two(struct two *two, const struct form *form, uint64_t caps)
{
	begin(two, form, caps);
	meet(two);
}

void close_two(struct two *two)
{
	ct_close_side(&two->a);
	ct_close_side(&two->b);
}

bool nothing_comes(struct ct_side *side)
{
	double until = ct_now() + 0.05;

	while (ct_now() < until)
		ct_drive();
	for (int i = 0; i < ct_count_of(side); i++)
		if (side->rxq[i]->count)
			return false;
	return true;
}

void bind_late(struct two *two)
{
	if (two->b.setup.bound != CT_LATER)
		return;
	REQUIRE(nothing_comes(&two->b));
	for (int i = 0; i < ct_count_of(&two->b); i++)
		if (!two->b.bound[i])
			ct_bind_shared(&two->b, i);
}

int at_b(const struct two *two, int i)
{
	return i % ct_takers(&two->b);
}

void send_to_b(struct two *two, int i, int place, int tag)
{
	ct_side_send(&two->a, i, ct_address(&two->a, &two->b, at_b(two, i)), place, LENGTH, tag);
}

struct ct_completion arrives(struct two *two, int i, int place, int received)
{
	struct ct_completion got;

	got = ct_side_done(&two->b, at_b(two, i), received, LENGTH, place);
	ct_side_sent(&two->a, i, place);
	return got;
}

bool is_connected(void)
{
	return ct_opt.type == FI_EP_MSG;
}

uint64_t both_kinds(void)
{
	return is_connected() ? FI_MSG : FI_MSG | FI_TAGGED | FI_SOURCE;
}

void drive_for_a_while(void)
{
	for (int i = 0; i < 100; i++)
		ct_drive();
}

void take_back(struct fid_ep *ep, struct ct_cq *queue, void *operation)
{
	struct ct_completion end;

	OK(fi_cancel(&ep->fid, operation));
	end = ct_next_of(queue);
	REQUIRE(end.err == FI_ECANCELED && end.context == operation);
}

void pass(struct ct_side *from, int i, struct ct_side *to, int j, size_t len, bool is_expected,
	  int tag)
{
	fi_addr_t source = ct_source(to, from, i);

	if (is_expected)
		ct_side_receive(to, j, 0, len, FI_ADDR_UNSPEC, tag);
	ct_side_send(from, i, ct_address(from, to, j), 0, len, tag);
	if (!is_expected)
		ct_side_receive(to, j, 0, len, FI_ADDR_UNSPEC, tag);
	REQUIRE(ct_side_done(to, j, 0, len, 0).src == source);
	ct_side_sent(from, i, 0);
}
