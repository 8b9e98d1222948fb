/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* What the tests of connections share, and the tests that are in files of their own. */
#ifndef CM_BENCH_H
#define CM_BENCH_H

#include "peer.h"

/* Two sides without endpoints; a listens. */
struct bench {
	struct ct_pair pair;
	unsigned char name[256];
	size_t name_len;
};

extern struct fi_context2 tx_context, rx_context;

void setup(struct bench *bench);

/* Passes a message each way. */
void exchange(struct ct_pair *pair);

/* Connects b to a. */
void connect_pair(struct bench *bench);

/* Bytes of connection data that an endpoint or a listener takes, as far as the tests send any. */
size_t data_limit(struct fid *fid);

/* refusing.c */
void reject(void);
void reject_with_endpoint(void);
void reject_after_endpoint(void);
void answered_request(void);
void refused(void);

/* ending.c */
void shutdown_event(void);
void close_event(void);
void shutdown_delivers(void);
void after_shutdown(void);
void received_after_shutdown(void);
void messages_before_ends(void);

#endif
