/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The kinds of endpoints, and the times at which they get a shared context. */
#ifndef FORM_H
#define FORM_H

#include <stdlib.h>
#include <string.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "check.h"
#include "contexts.h"

enum { TAG = 7, LENGTH = 100 };

/* Of who receives. */
struct form {
	const char *name;
	struct ct_setup setup;
	bool accepts;			/* its endpoints accept connections; the others connect */
};

/* Who sends, and who receives. */
struct two {
	struct ct_side a, b;
	bool accepts;
};

/* Domains and queues of both, and what meets after that. */
void begin(struct two *two, const struct form *form, uint64_t caps);
void meet(struct two *two);
void open_two(struct two *two, const struct form *form, uint64_t caps);
void close_two(struct two *two);

/* Binds what is bound when the test says so. Messages that are under way arrive before. */
void bind_late(struct two *two);

/* Whether nothing is received for a moment. */
bool nothing_comes(struct ct_side *side);

/* The index that receives what index i sends. */
int at_b(const struct two *two, int i);

/* A message of index i, which arrives in the receive at another place. */
void send_to_b(struct two *two, int i, int place, int tag);
struct ct_completion arrives(struct two *two, int i, int place, int received);

/* A message from an index of one side to an index of another one. */
void pass(struct ct_side *from, int i, struct ct_side *to, int j, size_t len, bool is_expected,
	  int tag);

/* Connected endpoints of some libraries have one kind of messages at a time, and none have
 * sources. */
bool is_connected(void);
uint64_t both_kinds(void);

/* Takes an operation back. Its end is in the queue, and nothing else. */
void take_back(struct fid_ep *ep, struct ct_cq *queue, void *operation);

void drive_for_a_while(void);

/* All that a form can be combined with (combined.c). */
void combined(const struct form *form);

extern const struct ct_test scalable_tests[], shared_tests[];
extern const size_t scalable_count, shared_count;

#endif
