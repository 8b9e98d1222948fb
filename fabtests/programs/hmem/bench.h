/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* What the parts of the program share: both ends of a transfer, each with a buffer. */
#ifndef HMEM_BENCH_H
#define HMEM_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "device.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LARGEST ((1 << 20) + 13)
#define TAG 0x1122334455667788ULL
#define SIZES 9

extern const size_t sizes[SIZES];

/* A buffer, in the memory of the device or of the host. */
struct buffer {
	bool is_device;
	unsigned char *data;
	struct fid_mr *mr;
	void *desc;
	uint64_t key, addr;
};

/* Both ends, each with a buffer. */
struct bench {
	struct ct_pair pair;
	struct buffer near, far;
	void *scratch;
};

/* Whether memory of the device has to be named by descriptors (FI_MR_HMEM). */
extern bool demands_desc;
/* The interface by which it is registered. */
extern enum fi_hmem_iface interface;

int register_as(struct ct_peer *peer, void *data, size_t len, uint64_t access, int device,
		enum fi_hmem_iface iface, struct fid_mr **mr);
void with_descriptors(struct fi_info *hints);

/* Fills a buffer, and says whether it holds what another one was filled with. */
void put(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed);
void *content(struct bench *bench, struct buffer *buffer, size_t len);
bool holds(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed);
uint64_t word(struct bench *bench, struct buffer *buffer);
void set(struct buffer *buffer, size_t at, uint64_t value);

/* Opens a pair with buffers in memory of the device, or of the host. */
void setup(struct bench *bench, struct ct_spec spec, bool near, bool far);
void teardown(struct bench *bench);

bool is_inject(enum ct_send_form form);
/* Passes a message from one buffer to the other. */
void pass(struct bench *bench, bool tagged, enum ct_send_form send, enum ct_recv_form recv,
	  size_t len, bool expected);
/* Passes one of the host's memory to a peer that has buffers of its own. */
void pass_host(struct ct_peer *from, fi_addr_t to, struct ct_peer *at);

/* held.c */
void under_a_kernel(void);
void held(void);
void held_sends(void);
void held_results(void);

/* failing.c */
void failing(void);
void failing_reads(void);
void after_a_reset(void);
void reset_receiving(void);
void reset_sending(void);
void reset_midway(void);
void reset_accessing(void);
void reset_counting(void);

#endif
