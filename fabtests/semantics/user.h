/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A user of libfabric that knows the library by four functions only, so that it
 * can use one that it has loaded itself, or several.
 */
#ifndef SEMANTICS_USER_H
#define SEMANTICS_USER_H

#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

/* A loaded library. */
struct library {
	void *handle;
	int (*getinfo)(uint32_t version, const char *node, const char *service,
		       uint64_t flags, const struct fi_info *hints,
		       struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		      void *context);
};

/* An RDM endpoint of one of them, with all that it needs. */
struct user {
	const struct library *library;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[256];
	size_t name_len;
};

/* Ends the process with a line on standard error. */
void give_up(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* Takes the functions of a library that dlopen(3) or dlmopen(3) has given. */
void take_library(struct library *library, void *handle);

/* Opens an endpoint of a provider on 127.0.0.1, or wherever it chooses. */
void open_user(struct user *user, const struct library *library,
	       const char *provider);
void close_user(struct user *user);

/* Passes messages of several lengths in both directions, and compares them. */
void exchange(struct user *a, struct user *b);

/* Two endpoints of one library that exchange messages: all of the above. */
void use_library(const struct library *library, const char *provider);

/* What this process has. */
int descriptors(void);
int threads(void);
long resident_kilobytes(void);
bool is_mapped(const char *path);

#endif
