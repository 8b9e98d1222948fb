/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Second processes. They are forked before this process uses libfabric, wait
 * until they are told to begin, and have a socket to this process.
 */
#ifndef CT_CHILD_H
#define CT_CHILD_H

#include <stddef.h>
#include <sys/types.h>

struct ct_child {
	pid_t pid;
	int fd;				/* this process's end of the socket */
};

/* A child that will call the function with its end of the socket. */
struct ct_child ct_spawn(void (*run)(int fd));

/* Lets it begin. */
void ct_begin(const struct ct_child *child);

/* Waits for its end, which has to be a good one. */
void ct_join(struct ct_child *child);

/* Kills it with SIGKILL and waits until that is done. */
void ct_kill(struct ct_child *child);

/* The communication of the two outside of libfabric. */
void ct_tell(int fd, const void *data, size_t len);
void ct_hear(int fd, void *data, size_t len);

#endif
