/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* What calls.c uses of waiting.c. */
#ifndef SIMULATED_WAITING_H
#define SIMULATED_WAITING_H

#include "world.h"

/* syscall(2) of the C library: calls.c has one of its own. */
long (*kernel(void))(long, ...);

struct epoll_event;
struct pollfd;

int poller_control(struct object *poller, int operation, int fd, const struct epoll_event *event);
bool others_have_work(void);
/* Without the lock. */
int wait_for_poller(struct object *poller, struct epoll_event *out, int most, uint64_t time);
int wait_for_descriptors(struct pollfd *fds, size_t count, uint64_t time);
void sleep_for(uint64_t time);

#endif
