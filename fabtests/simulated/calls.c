/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The functions of the C library that stand for the simulated ones: see world.h. What is not
 * simulated (files, pipes, unix(7) sockets) goes to the kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "steps.h"
#include "waiting.h"

/* Returns a result as functions of the C library do. */
static long result(long value)
{
	if (value >= 0)
		return value;
	errno = (int)-value;
	return -1;
}

/* The object of a descriptor, with the lock; NULL, and no lock, if the kernel has it. */
static struct object *find(int fd, enum kind kind)
{
	struct object *object;

	enter();
	object = object_of(fd);
	if (object && (object->kind == kind || (kind == STREAM && object->kind == DATAGRAMS)))
		return object;
	leave();
	return NULL;
}

#define LEAVE(value) do {						\
		long done = (value);					\
									\
		leave();						\
		return result(done);					\
	} while (0)

/* A descriptor that nobody uses otherwise. */
static int place(int flags)
{
	return (int)kernel()(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | flags);
}

static void put_address(const union address *addr, struct sockaddr *out, socklen_t *len)
{
	socklen_t size = addr->any.sa_family == AF_INET6 ? sizeof(addr->v6) : sizeof(addr->v4);

	if (!out || !len)
		return;
	memcpy(out, addr, size < *len ? size : *len);
	*len = size;
}

static bool get_address(union address *addr, const struct sockaddr *in, socklen_t len)
{
	memset(addr, 0, sizeof(*addr));
	memcpy(addr, in, len < sizeof(*addr) ? len : sizeof(*addr));
	return len >= sizeof(addr->v4);
}

static uint64_t nanoseconds(const struct timespec *time)
{
	return time ? (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_nsec : NEVER;
}

static uint64_t of_milliseconds(int timeout)
{
	return timeout < 0 ? NEVER : (uint64_t)timeout * MILLI;
}

/* Sockets. */

static bool has_connected;

int socket(int family, int type, int protocol)
{
	int kind = type & 0xf, fd;

	if ((family != AF_INET && family != AF_INET6) || (kind != SOCK_STREAM && kind != SOCK_DGRAM))
		return (int)kernel()(SYS_socket, family, type, protocol);
	enter();
	/* Programs that begin have what they need. */
	if (has_connected && chance(profile.scarce, 1000))
		LEAVE(-EMFILE);
	fd = place(type & (SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (fd >= 0)
		socket_open(fd, family, kind);
	leave();
	return fd;
}

int bind(int fd, const struct sockaddr *in, socklen_t len)
{
	struct object *object = find(fd, STREAM);
	union address addr;

	if (!object)
		return (int)kernel()(SYS_bind, fd, in, len);
	LEAVE(get_address(&addr, in, len) ? socket_bind(object, &addr) : -EINVAL);
}

int listen(int fd, int backlog)
{
	struct object *object = find(fd, STREAM);

	if (!object)
		return (int)kernel()(SYS_listen, fd, backlog);
	LEAVE(socket_listen(object, backlog));
}

int connect(int fd, const struct sockaddr *in, socklen_t len)
{
	struct object *object = find(fd, STREAM);
	union address addr;

	if (!object)
		return (int)kernel()(SYS_connect, fd, in, len);
	has_connected = true;
	LEAVE(get_address(&addr, in, len) ? socket_connect(object, &addr) : -EINVAL);
}

int accept4(int fd, struct sockaddr *out, socklen_t *len, int flags)
{
	struct object *object = find(fd, STREAM), *far;
	int new, error;

	if (!object)
		return (int)kernel()(SYS_accept4, fd, out, len, flags);
	if (chance(profile.scarce, 1000))
		LEAVE(-EMFILE);
	far = socket_accept(object, &error);
	if (!far)
		LEAVE(-error);
	new = place(flags & (SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (new < 0)
		close_object(far);
	else
		adopt(far, new);
	if (new >= 0)
		put_address(&far->peer, out, len);
	leave();
	return new;
}

int accept(int fd, struct sockaddr *out, socklen_t *len)
{
	return accept4(fd, out, len, 0);
}

int getsockname(int fd, struct sockaddr *out, socklen_t *len)
{
	struct object *object = find(fd, STREAM);

	if (!object)
		return (int)kernel()(SYS_getsockname, fd, out, len);
	put_address(&object->name, out, len);
	LEAVE(0);
}

int getpeername(int fd, struct sockaddr *out, socklen_t *len)
{
	struct object *object = find(fd, STREAM);

	if (!object)
		return (int)kernel()(SYS_getpeername, fd, out, len);
	if (!object->peer.any.sa_family || (object->kind == STREAM && object->stage != CONNECTED))
		LEAVE(-ENOTCONN);
	put_address(&object->peer, out, len);
	LEAVE(0);
}

int shutdown(int fd, int how)
{
	struct object *object = find(fd, STREAM);

	if (!object)
		return (int)kernel()(SYS_shutdown, fd, how);
	LEAVE(socket_shutdown(object, how));
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
	struct object *object = find(fd, STREAM);
	bool is_offload = level == IPPROTO_UDP || (level == SOL_SOCKET && option == SO_ZEROCOPY);

	if (!object)
		return (int)kernel()(SYS_setsockopt, fd, level, option, value, len);
	if (level == SOL_SOCKET && option == SO_REUSEADDR && len >= sizeof(int))
		object->reuses = *(const int *)value != 0;
	/* Nothing is done on the way that a socket would not do by itself. */
	LEAVE(is_offload ? -ENOPROTOOPT : 0);
}

int getsockopt(int fd, int level, int option, void *out, socklen_t *len)
{
	struct object *object = find(fd, STREAM);
	int value = 0;

	if (!object)
		return (int)kernel()(SYS_getsockopt, fd, level, option, out, len);
	if (level == IPPROTO_UDP)
		LEAVE(-ENOPROTOOPT);
	if (level == SOL_SOCKET && option == SO_ERROR) {
		value = object->error;
		object->error = 0;
	} else if (level == SOL_SOCKET && option == SO_TYPE) {
		value = object->kind == STREAM ? SOCK_STREAM : SOCK_DGRAM;
	} else if (level == SOL_SOCKET && option == SO_DOMAIN) {
		value = object->family;
	} else if (level == SOL_SOCKET && (option == SO_SNDBUF || option == SO_RCVBUF)) {
		value = (int)profile.least_room;
	} else if (level == SOL_SOCKET && option == SO_ACCEPTCONN) {
		value = object->stage == LISTENING;
	}
	memset(out, 0, *len);
	memcpy(out, &value, *len < sizeof(value) ? *len : sizeof(value));
	LEAVE(0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct object *object = find(fd, STREAM);
	union address to;
	bool has_dest = message->msg_name && message->msg_namelen;

	if (!object)
		return kernel()(SYS_sendmsg, fd, message, flags);
	if (has_dest)
		get_address(&to, message->msg_name, message->msg_namelen);
	LEAVE(socket_send(object, message->msg_iov, message->msg_iovlen, has_dest ? &to : NULL));
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *dest,
	       socklen_t dest_len)
{
	struct iovec iov = { (void *)bytes, len };
	struct msghdr message = {
		.msg_name = (void *)dest, .msg_namelen = dest ? dest_len : 0, .msg_iov = &iov,
		.msg_iovlen = 1,
	};

	return sendmsg(fd, &message, flags);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	return sendto(fd, bytes, len, flags, NULL, 0);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	struct object *object = find(fd, STREAM);
	unsigned done;

	if (!object)
		return (int)kernel()(SYS_sendmmsg, fd, messages, count, flags);
	leave();
	for (done = 0; done < count; done++) {
		ssize_t sent = sendmsg(fd, &messages[done].msg_hdr, flags);

		if (sent < 0)
			return done ? (int)done : -1;
		messages[done].msg_len = (unsigned)sent;
	}
	return (int)done;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	struct object *object = find(fd, STREAM);
	bool is_truncated = false;
	union address from = { 0 };
	ssize_t got;

	if (!object)
		return kernel()(SYS_recvmsg, fd, message, flags);
	if (flags & MSG_ERRQUEUE)
		LEAVE(-EAGAIN);
	got = socket_receive(object, message->msg_iov, message->msg_iovlen, flags & MSG_PEEK, &from,
			     &is_truncated);
	message->msg_controllen = 0;
	message->msg_flags = is_truncated ? MSG_TRUNC : 0;
	if (got >= 0 && message->msg_name && from.any.sa_family)
		put_address(&from, message->msg_name, &message->msg_namelen);
	LEAVE(got);
}

ssize_t recvfrom(int fd, void *buffer, size_t len, int flags, struct sockaddr *out, socklen_t *out_len)
{
	struct iovec iov = { buffer, len };
	struct msghdr message = {
		.msg_name = out, .msg_namelen = out && out_len ? *out_len : 0, .msg_iov = &iov,
		.msg_iovlen = 1,
	};
	ssize_t got = recvmsg(fd, &message, flags);

	if (got >= 0 && out_len)
		*out_len = message.msg_namelen;
	return got;
}

ssize_t recv(int fd, void *buffer, size_t len, int flags)
{
	return recvfrom(fd, buffer, len, flags, NULL, NULL);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	struct object *object = find(fd, STREAM);
	unsigned done;

	if (!object)
		return (int)kernel()(SYS_recvmmsg, fd, messages, count, flags, timeout);
	leave();
	for (done = 0; done < count; done++) {
		ssize_t got = recvmsg(fd, &messages[done].msg_hdr, flags);

		if (got < 0)
			return done ? (int)done : -1;
		messages[done].msg_len = (unsigned)got;
	}
	return (int)done;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	void *argument;
	struct object *object;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	object = find(fd, STREAM);
	if (!object)
		return (int)kernel()(SYS_ioctl, fd, request, argument);
	if (request == FIONREAD)
		*(int *)argument = (int)arrived(object);
	LEAVE(request == FIONREAD || request == FIONBIO ? 0 : -ENOTTY);
}

/* All descriptors. */

int close(int fd)
{
	struct object *object;

	enter();
	object = object_of(fd);
	if (object)
		close_object(object);
	leave();
	return (int)kernel()(SYS_close, fd);
}

ssize_t read(int fd, void *buffer, size_t len)
{
	struct object *object = find(fd, TIMER);
	bool has_rung;

	if (!object) {
		object = find(fd, STREAM);
		if (!object)
			return kernel()(SYS_read, fd, buffer, len);
		leave();
		return recv(fd, buffer, len, 0);
	}
	has_rung = object->deadline <= now();
	if (has_rung) {
		object->deadline = NEVER;
		memcpy(buffer, &(uint64_t) { 1 }, sizeof(uint64_t));
	}
	LEAVE(has_rung ? (long)sizeof(uint64_t) : -EAGAIN);
}

/* Timers, pollers, and time. */

int timerfd_create(int clock, int flags)
{
	int fd = place(flags & (TFD_CLOEXEC | TFD_NONBLOCK));

	(void)clock;
	if (fd < 0)
		return fd;
	enter();
	open_timer(fd);
	leave();
	return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *setting, struct itimerspec *old)
{
	struct object *object = find(fd, TIMER);
	uint64_t time = nanoseconds(&setting->it_value);

	if (!object)
		return (int)kernel()(SYS_timerfd_settime, fd, flags, setting, old);
	object->deadline = !time ? NEVER : flags & TFD_TIMER_ABSTIME ? time : now() + time;
	if (object->deadline != NEVER)
		at(object->deadline, ALARM, object);
	LEAVE(0);
}

int epoll_create1(int flags)
{
	int fd = (int)kernel()(SYS_epoll_create1, flags);

	if (fd < 0)
		return fd;
	enter();
	open_poller(fd);
	leave();
	return fd;
}

int epoll_create(int size)
{
	(void)size;
	return epoll_create1(0);
}

int epoll_ctl(int fd, int operation, int of, struct epoll_event *event)
{
	struct object *object = find(fd, POLLER);

	if (!object)
		return (int)kernel()(SYS_epoll_ctl, fd, operation, of, event);
	LEAVE(poller_control(object, operation, of, event));
}

static int wait_for(int fd, struct epoll_event *out, int most, uint64_t time)
{
	struct object *object;

	simulated_step(true);
	object = find(fd, POLLER);
	if (!object)
		return (int)result(-EBADF);
	leave();
	return wait_for_poller(object, out, most, time);
}

int epoll_pwait2(int fd, struct epoll_event *out, int most, const struct timespec *time, const sigset_t *mask)
{
	(void)mask;
	return wait_for(fd, out, most, nanoseconds(time));
}

int epoll_pwait(int fd, struct epoll_event *out, int most, int timeout, const sigset_t *mask)
{
	(void)mask;
	return wait_for(fd, out, most, of_milliseconds(timeout));
}

int epoll_wait(int fd, struct epoll_event *out, int most, int timeout)
{
	return epoll_pwait(fd, out, most, timeout, NULL);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
	(void)mask;
	return wait_for_descriptors(fds, count, nanoseconds(time));
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	return wait_for_descriptors(fds, count, of_milliseconds(timeout));
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	uint64_t time;

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE && clock != CLOCK_BOOTTIME)
		return (int)kernel()(SYS_clock_gettime, clock, out);
	enter();
	pass(100);
	time = now();
	leave();
	*out = (struct timespec) { (time_t)(time / SECOND), (long)(time % SECOND) };
	return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	struct timespec start = { 0 };
	uint64_t length = nanoseconds(time);

	(void)left;
	if (flags & TIMER_ABSTIME) {
		clock_gettime(clock, &start);
		length = length > nanoseconds(&start) ? length - nanoseconds(&start) : 0;
	}
	sleep_for(length);
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	sleep_for(nanoseconds(time));
	return 0;
}

int usleep(useconds_t time)
{
	sleep_for((uint64_t)time * MICRO);
	return 0;
}

/* To other threads with something to do: to those of other processes would only take time. */
int sched_yield(void)
{
	bool yields;

	simulated_yield();
	enter();
	pass(MICRO);
	yields = others_have_work();
	leave();
	return yields ? (int)kernel()(SYS_sched_yield) : 0;
}

/* Who waits for a lock that the other of two woven threads holds lets that one go on. */
static long futex(const long *a)
{
	int command = (int)a[1] & FUTEX_CMD_MASK;
	bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
	long ret;

	if (waits)
		goes_away();
	ret = kernel()(SYS_futex, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (waits) {
		int kept = errno;

		comes_back();
		errno = kept;
	}
	return ret;
}

/* The library makes these system calls itself, where functions are cancellation points. */
long syscall(long number, ...)
{
	va_list rest;
	long a[6];

	va_start(rest, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(rest, long);
	va_end(rest);
	simulated_step(true);
	switch (number) {
	case SYS_futex:
		return futex(a);
	case SYS_sendto:
		return sendto((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t)a[5]);
	case SYS_sendmsg:
		return sendmsg((int)a[0], (void *)a[1], (int)a[2]);
	case SYS_sendmmsg:
		return sendmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3]);
	case SYS_recvfrom:
		return recvfrom((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (void *)a[5]);
	case SYS_recvmsg:
		return recvmsg((int)a[0], (void *)a[1], (int)a[2]);
	case SYS_recvmmsg:
		return recvmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3], (void *)a[4]);
	default:
		return kernel()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}
