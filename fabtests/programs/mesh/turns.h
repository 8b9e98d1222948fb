/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Two threads that take turns within their calls, where the network is a simulated one. */
#ifndef MESH_TURNS_H
#define MESH_TURNS_H

#include "mesh.h"

/* A second thread that does this, if the seed wants it, until the first one says stop. */
void begin_turns(void (*work)(void));
void end_turns(void);
/* The second thread is in no call, and begins none until others_go_on(). */
void others_rest(void);
void others_go_on(void);
/* Around the calls on a member: the other thread makes none meanwhile. */
void enter(struct member *member);
void leave(struct member *member);

#define WITHIN(member, call)                                                                                          \
	do {                                                                                                          \
		enter(member);                                                                                        \
		call;                                                                                                 \
		leave(member);                                                                                        \
	} while (0)

#endif
