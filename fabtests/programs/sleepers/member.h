/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The processes. The first one is the host, which stays; the others are its
 * guests, who come and go. What they say to the process that started them: a
 * host that is new its card, a guest that has done everything one byte. The
 * host is told before it closes its endpoint, when all guests have left.
 */
#ifndef SLEEPERS_MEMBER_H
#define SLEEPERS_MEMBER_H

#include "script.h"
#include "survivor.h"

/* What a guest is told: the season, or -1 at the end, and the host. */
struct call {
	int season;
	struct ct_card host;
};

void host_run(const struct script *script, int fd);
void guest_run(const struct script *script, int fd, int self);

#endif
