/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Sides with several endpoints each, all in one process (together.h): plain
 * endpoints or contexts of a scalable one, and either with shared contexts,
 * which may be bound late. The endpoint or the contexts of one index have
 * queues of their own.
 */
#ifndef CT_CONTEXTS_H
#define CT_CONTEXTS_H

#include "memory.h"
#include "together.h"

enum {
	CT_CONTEXTS = 3, CT_CONTEXT_BITS = 4,
	/* Places in memory for messages; of the first ones, the bytes of each. */
	CT_PLACES = 32, CT_LARGE_PLACES = 4, CT_PLACE = 1 << 20,
};

enum ct_kind {
	CT_PLAIN,		/* endpoints */
	CT_SHARED,		/* endpoints with a shared receive context */
	CT_SENDS_SHARED,	/* endpoints with a shared transmit context */
	CT_SCALABLE,		/* transmit and receive contexts */
	CT_SCALABLE_SHARED,	/* transmit contexts, and FI_SHARED_CONTEXT for receives */
	CT_SCALABLE_SEVERAL,	/* both, a shared receive context bound to each that receives */
	CT_SCALABLE_THROUGH,	/* the same, bound to the scalable endpoint */
	CT_SCALABLE_SENDS,	/* receive contexts, and FI_SHARED_CONTEXT for transmits */
};

/* When an endpoint gets the shared receive context: before it is enabled, or after that,
 * after fi_connect or fi_accept, after FI_CONNECTED, or when the test says so. */
enum ct_stage { CT_AT_ONCE, CT_ENABLED, CT_BEGUN, CT_CONNECTED, CT_LATER };

struct ct_setup {
	enum ct_kind kind;
	int count;			/* of indices; 0: CT_CONTEXTS */
	int first;			/* the index from which on contexts are opened */
	enum ct_stage bound;
	bool first_at_once;		/* index 0 gets the shared context before all that */
	bool unannounced;		/* CT_SHARED: not in the hints */
	bool one_queue;			/* of all that receive */
	bool enabled_first;		/* the scalable endpoint before its contexts */
	size_t size;			/* of the shared context; 0: the provider's choice */
	struct fi_info *info;		/* what to open, then the side's; NULL: what there is */
	const struct ct_peer *beside;	/* the domain to open it in; NULL: its own */
	struct ct_spec spec;		/* of the domain and the queues */
};

/* How a side calls the addresses of another one. */
struct ct_known {
	const struct ct_side *side;
	fi_addr_t at[CT_CONTEXTS];
};

/* What is NULL is not open. A plain endpoint is tx[i] and rx[i]. */
struct ct_side {
	struct ct_setup setup;
	struct ct_peer peer;		/* its objects but the endpoint; shared receive context in srx */
	struct fid_pep *pep;
	struct fid_stx *stx;
	struct fid_wait *wait;		/* of the queues, with FI_WAIT_SET */
	struct fid_ep *sep, *tx[CT_CONTEXTS], *rx[CT_CONTEXTS];
	struct ct_cq *txq[CT_CONTEXTS], *rxq[CT_CONTEXTS];
	struct ct_cq further[2 * CT_CONTEXTS];
	bool bound[CT_CONTEXTS];	/* to the shared receive context */
	unsigned char name[CT_CONTEXTS][CT_NAME];
	struct ct_known known[4];
	struct ct_memory out, in;
};

bool ct_is_scalable(enum ct_kind kind);
bool ct_shares_receives(enum ct_kind kind);

/* fi_getinfo for it. */
int ct_find(const struct ct_setup *setup, struct fi_info **info);

/* Everything but endpoints: what the library refuses is returned. The test is skipped if the
 * provider has nothing like it. */
int ct_open_side(struct ct_side *side, const struct ct_setup *setup);

/* The scalable endpoint, without contexts. */
int ct_open_sep(struct ct_side *side);

/* Context i of it, with its queue, enabled. */
int ct_open_tx(struct ct_side *side, int i);
int ct_open_rx(struct ct_side *side, int i);

/* All its endpoints or contexts, but for those that are connected. */
int ct_open_all(struct ct_side *side);

/* Both in turn; nothing of it may be refused. */
void ct_open_ready(struct ct_side *side, const struct ct_setup *setup);

/* Opens the endpoints of two sides and connects those with the same index (MSG): the second
 * side's are the ones that connect. */
void ct_introduce(struct ct_side *a, struct ct_side *b);

/* Binds the shared context to endpoint i. */
void ct_bind_shared(struct ct_side *side, int i);

/* Closes the endpoints with their shared contexts, or all of it. */
void ct_close_endpoints(struct ct_side *side);
void ct_close_side(struct ct_side *side);

int ct_count_of(const struct ct_side *side);

/* How many ways there are to address it. */
int ct_takers(const struct ct_side *side);

/* Where receives are posted to for what is addressed to an index. */
struct fid_ep *ct_taker(const struct ct_side *side, int i);

/* Inserts an address and returns how the side's vector calls it. */
fi_addr_t ct_side_insert(struct ct_side *side, const void *name);

/* How a side addresses an index of another one, and how it calls the source of its messages. */
fi_addr_t ct_address(struct ct_side *side, struct ct_side *other, int i);
fi_addr_t ct_source(struct ct_side *side, struct ct_side *other, int i);

/* A message of an index, or a receive for one; the place, which is its own until it has ended,
 * decides its contents, and which context it has. Without FI_TAGGED, the tag is CT_UNTAGGED. */
enum { CT_UNTAGGED = -1 };
void ct_side_send(struct ct_side *side, int i, fi_addr_t to, int place, size_t len, int tag);
void ct_side_receive(struct ct_side *side, int i, int place, size_t len, fi_addr_t from, int tag);

/* A place in memory; those behind the large ones have 4 KiB. */
unsigned char *ct_place(const struct ct_memory *memory, int place);

/* The contexts of the messages and receives at the places. */
extern struct fi_context2 ct_sent[CT_PLACES], ct_received[CT_PLACES];

/* The successful end of the message at a place, and of the receive at one. */
void ct_side_sent(struct ct_side *side, int i, int place);
struct ct_completion ct_side_done(struct ct_side *side, int i, int place, size_t len, int sent);

/* Whether the contents of a place are those of the message from another one. */
bool ct_side_holds(const struct ct_side *side, int place, size_t len, int sent);

#define ct_side_sent(...) CT_HERE(ct_side_sent, __VA_ARGS__)
#define ct_side_done(...) CT_HERE(ct_side_done, __VA_ARGS__)
#define ct_open_ready(...) CT_HERE(ct_open_ready, __VA_ARGS__)

#endif
