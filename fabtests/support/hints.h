/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Requests of fi_getinfo(3) by number: the same number is the same request everywhere. */
#ifndef CT_HINTS_H
#define CT_HINTS_H

#include <stddef.h>
#include <stdint.h>
#include <rdma/fabric.h>

struct ct_request {
	uint32_t version;
	const char *node, *service;
	uint64_t flags;
	struct fi_info *hints;
	char text[1024];		/* all of it in words, without blanks */
};

/* Generates a request: few attributes are set, each to a value that some
 * provider has, to one beyond any limit, or to one without meaning. Its
 * provider is this one, or if NULL, any. */
void ct_draw_request(uint64_t number, const char *provider, struct ct_request *request);
void ct_free_request(struct ct_request *request);

/* fi_getinfo(3) of it. */
int ct_ask(const struct ct_request *request, struct fi_info **found);

#endif
