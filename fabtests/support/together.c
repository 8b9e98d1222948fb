/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "together.h"
#include "wait.h"

#undef ct_next_of
#undef ct_done_of

enum { MOST = 64, MOMENT = 200 };

static struct ct_cq *all[MOST];
static int count;

int ct_cq_join(struct ct_cq *cq, struct fid_domain *domain, struct fi_cq_attr attr)
{
	int ret;

	REQUIRE(count < MOST);
	memset(cq, 0, sizeof(*cq));
	cq->format = attr.format = FI_CQ_FORMAT_TAGGED;
	ret = fi_cq_open(domain, &attr, &cq->fid, NULL);
	if (!ret)
		all[count++] = cq;
	return ret;
}

void ct_cq_leave(struct ct_cq *cq)
{
	if (!cq->fid)
		return;
	OK(fi_close(&cq->fid->fid));
	free(cq->stash);
	memset(cq, 0, sizeof(*cq));
	for (int i = 0; i < count; i++)
		if (all[i] == cq)
			all[i] = all[--count];
}

void ct_drive(void)
{
	for (int i = 0; i < count; i++)
		ct_pull(all[i]);
}

struct ct_completion ct_next_of(struct ct_cq *cq)
{
	double until = ct_now() + ct_patience();

	while (!cq->count) {
		REQUIRE(ct_now() < until);
		ct_drive();
	}
	cq->count--;
	return cq->stash[cq->first++];
}

struct ct_completion ct_done_of(struct ct_cq *cq, void *context)
{
	struct ct_completion completion;

	do
		completion = ct_next_of(cq);
	while (!completion.err && !completion.context && context);
	if (completion.err)
		ct_fail(__FILE__, __LINE__, "a completion with error %s",
			fi_strerror(completion.err));
	REQUIRE(completion.context == context);
	return completion;
}

bool ct_all_stay_empty(void)
{
	for (int i = 0; i < MOMENT; i++)
		ct_drive();
	for (int i = 0; i < count; i++)
		if (all[i]->count)
			return false;
	return true;
}
