/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Requests that are rejected, and those that nobody answers. */
#include "bench.h"
#include "check.h"
#include "connect.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

/* A rejected request is an error event, with the rejecting side's data. */
void reject(void)
{
	unsigned char why[CT_CM_DATA];
	struct ct_event request, refused;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	setup(&bench);
	for (int round = 0; round < 2; round++) {
		size_t len = round ? 16 : 0;

		ct_open_ep(b, b->info);
		ct_fill(why, len, 7);
		OK(fi_connect(b->ep, bench.name, NULL, 0));
		ct_wait_request(a, &request);
		OK(fi_reject(bench.pair.pep, request.info->handle, why, len));
		fi_freeinfo(request.info);
		refused = ct_any_event(b);
		REQUIRE(refused.failed);
		CHECK(refused.err.err == FI_ECONNREFUSED, "errno-%zu", len);
		CHECK(refused.err.fid == &b->ep->fid, "fid-%zu", len);
		CHECK(refused.data_len >= len && ct_holds(refused.data, len, 7),
		      "data-%zu", len);
		OK(fi_close(&b->ep->fid));
		b->ep = NULL;
	}
	/* The listener continues. */
	connect_pair(&bench);
	exchange(&bench.pair);
	ct_close_pair(&bench.pair);
}

/* A request may be rejected, with data, while an endpoint is open that might
 * accept it, which then cannot. */
void reject_with_endpoint(void)
{
	unsigned char why[CT_CM_DATA];
	struct ct_event request, refused;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	size_t len;

	setup(&bench);
	ct_open_ep(b, b->info);
	len = data_limit(&b->ep->fid);
	ct_fill(why, len, 7);
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	ct_open_ep(a, request.info);
	OK(fi_reject(bench.pair.pep, request.info->handle, why, len));
	refused = ct_any_event(b);
	REQUIRE(refused.failed);
	CHECK(refused.err.err == FI_ECONNREFUSED, "errno");
	CHECK(refused.data_len >= len && ct_holds(refused.data, len, 7),
	      "data");
	CHECK(fi_accept(a->ep, NULL, 0) < 0, "accept");
	CHECK(fi_reject(bench.pair.pep, request.info->handle, NULL, 0) ==
		      -FI_EINVAL,
	      "twice");
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	OK(fi_close(&b->ep->fid));
	b->ep = NULL;
	fi_freeinfo(request.info);
	/* The listener continues. */
	connect_pair(&bench);
	exchange(&bench.pair);
	ct_close_pair(&bench.pair);
}

/* Closing an endpoint without an answer ends the connection; an application
 * may reject the request afterwards, which has no effect. */
void reject_after_endpoint(void)
{
	struct ct_event request;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_ep *again;

	setup(&bench);
	ct_open_ep(b, b->info);
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	ct_open_ep(a, request.info);
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	CHECK(ct_any_event(b).failed, "ended");
	CHECK(fi_endpoint(a->domain, request.info, &again, NULL) == -FI_EINVAL,
	      "endpoint");
	OK(fi_reject(bench.pair.pep, request.info->handle, NULL, 0));
	CHECK(true, "reject");
	fi_freeinfo(request.info);
	ct_close_pair(&bench.pair);
}

/* A handle is invalid once its request is answered, or its listener closed:
 * its memory may have been reused. */
void answered_request(void)
{
	struct ct_event request;
	struct fi_info *named;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_ep *ep = NULL;

	setup(&bench);
	ct_open_ep(b, b->info);
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	OK(fi_reject(bench.pair.pep, request.info->handle, NULL, 0));
	CHECK(fi_endpoint(a->domain, request.info, &ep, NULL) == -FI_EINVAL,
	      "endpoint");
	CHECK(fi_reject(bench.pair.pep, request.info->handle, NULL, 0) ==
		      -FI_EINVAL,
	      "reject");
	fi_freeinfo(request.info);
	REQUIRE(ct_any_event(b).failed);

	named = fi_dupinfo(a->info);
	REQUIRE(named);
	named->handle = &bench.pair.pep->fid;
	OK(fi_close(&bench.pair.pep->fid));
	bench.pair.pep = NULL;
	CHECK(fi_endpoint(a->domain, named, &ep, NULL) == -FI_EINVAL,
	      "closed-listener");
	named->handle = NULL;
	fi_freeinfo(named);
	ct_close_pair(&bench.pair);
}

/* No endpoint listens there. */
void refused(void)
{
	struct ct_event event;
	struct bench bench;
	struct ct_peer *b = &bench.pair.b;
	int ret;

	setup(&bench);
	OK(fi_close(&bench.pair.pep->fid));
	bench.pair.pep = NULL;
	ct_open_ep(b, b->info);
	ret = fi_connect(b->ep, bench.name, NULL, 0);
	if (ret) {
		CHECK(ret == -FI_ECONNREFUSED, "errno");
	} else {
		event = ct_any_event(b);
		REQUIRE(event.failed);
		CHECK(event.err.fid == &b->ep->fid, "fid");
		CHECK(event.err.err == FI_ECONNREFUSED, "errno");
	}
	ct_close_pair(&bench.pair);
}
