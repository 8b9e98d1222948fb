/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The processes. The first one is the host, which stays; the others are its
 * guests, which leave and return. Their messages to the process that started
 * them: a new host sends its card, a guest that has finished one byte. The
 * host is told when all guests have left, before it closes its endpoint.
 */
#ifndef SLEEPERS_MEMBER_H
#define SLEEPERS_MEMBER_H

#include "script.h"
#include "survivor.h"

/* The data for a guest: the season, or -1 at the end, and the host. */
struct call {
	int season;
	struct ct_card host;
};

void host_run(const struct script *script, int fd);
void guest_run(const struct script *script, int fd, int self);

#endif
