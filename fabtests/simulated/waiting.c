/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Time, and those who wait: see world.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "steps.h"
#include "waiting.h"

/* Something that happens at a time. Of two at the same time, the one that was set first. */
struct event {
	uint64_t when, number;
	enum what what;
	struct object *object;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event *events;		/* a heap */
static size_t event_count, event_room;
static uint64_t event_number;
static uint64_t base, passed;
static int pollers;
/* Calls in a row that found nothing to report. */
static int in_vain;
/* How often time has passed with nothing due. */
static int still;
static pthread_key_t at_its_end;
/* Counts what the first thread does. */
static uint64_t first_calls;

long (*kernel(void))(long, ...)
{
	static long (*function)(long, ...);

	if (!function)
		function = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return function;
}

static int real_poll(struct pollfd *fds, size_t count, uint64_t time)
{
	struct timespec limit = { .tv_sec = time / SECOND, .tv_nsec = time % SECOND };

	return (int)kernel()(SYS_ppoll, fds, count, &limit, NULL, 0);
}

/* Whether the thread is the program's, or one of two that take turns. */
static bool is_first(void)
{
	return is_driver();
}

void enter(void)
{
	pthread_mutex_lock(&lock);
	if (is_first())
		first_calls++;
}

void leave(void)
{
	int kept = errno;

	pthread_mutex_unlock(&lock);
	errno = kept;
}

static void ends(void *unused);

__attribute__((constructor)) static void start(void)
{
	struct timespec real;

	kernel()(SYS_clock_gettime, CLOCK_MONOTONIC, &real);
	base = (uint64_t)real.tv_sec * SECOND + (uint64_t)real.tv_nsec;
	pthread_key_create(&at_its_end, ends);
	draw_profile();
}

uint64_t now(void)
{
	return base + passed;
}

static bool is_before(const struct event *a, const struct event *b)
{
	return a->when != b->when ? a->when < b->when : a->number < b->number;
}

static void swap(size_t a, size_t b)
{
	struct event kept = events[a];

	events[a] = events[b];
	events[b] = kept;
}

void at(uint64_t when, enum what what, struct object *object)
{
	if (event_count == event_room) {
		event_room = event_room ? 2 * event_room : 1024;
		events = realloc(events, event_room * sizeof(*events));
		if (!events)
			abort();
	}
	events[event_count] = (struct event) { when, event_number++, what, object };
	for (size_t i = event_count++; i && is_before(&events[i], &events[(i - 1) / 2]); i = (i - 1) / 2)
		swap(i, (i - 1) / 2);
}

static struct event take_first(void)
{
	struct event first = events[0];
	size_t i = 0;

	events[0] = events[--event_count];
	for (;;) {
		size_t least = i;

		for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < event_count; child++)
			if (is_before(&events[child], &events[least]))
				least = child;
		if (least == i)
			return first;
		swap(i, least);
		i = least;
	}
}

static void pass_until(uint64_t when)
{
	while (event_count && events[0].when <= when) {
		struct event event = take_first();

		if (event.when > now())
			passed = event.when - base;
		due(event.what, event.object);
	}
	if (when > now())
		passed = when - base;
}

void pass(uint64_t time)
{
	pass_until(now() + time);
}

static void let_others_work(void);

/* To the next event, but not beyond a time, nor by much while nothing happens: 50 us at first, up to
 * this many doublings of that. */
static void skip(uint64_t limit, int doublings)
{
	uint64_t most, next;

	let_others_work();
	still += still < doublings;
	most = now() + (50 * MICRO << still);
	next = event_count && events[0].when < most ? events[0].when : most;
	if (next < now())
		next = now();
	pass_until(next < limit ? next : limit);
}

void progressed(void)
{
	in_vain = still = 0;
}

/* A call has nothing to report: time passes once all pollers have been asked some times. */
static void nothing_yet(void)
{
	if (++in_vain > 8 + 4 * pollers) {
		in_vain = 0;
		/* What the library looks at in some calls only gets its turn in time. */
		skip(NEVER, 3);
	}
}

/* Pollers. */

static void enqueue(struct watch *watch)
{
	struct object *poller = watch->poller;

	if (watch->is_queued)
		return;
	watch->is_queued = true;
	watch->next_ready = NULL;
	*poller->ready_last = watch;
	poller->ready_last = &watch->next_ready;
	happened(poller);
}

void happened(struct object *object)
{
	for (struct watch *watch = object->watches; watch; watch = watch->next)
		enqueue(watch);
}

static void unqueue(struct watch *watch)
{
	struct object *poller = watch->poller;

	if (!watch->is_queued)
		return;
	for (struct watch **at = &poller->ready; *at; at = &(*at)->next_ready)
		if (*at == watch) {
			*at = watch->next_ready;
			if (!*at)
				poller->ready_last = at;
			break;
		}
	watch->is_queued = false;
}

/* Removes the watches of an object. */
void forget_watches(struct object *object)
{
	while (object->watches) {
		struct watch *watch = object->watches;

		object->watches = watch->next;
		unqueue(watch);
		free(watch);
	}
}

/* Removes the watch of an object by a poller that is closed. */
void forget_watch_of(struct object *object, const struct object *poller)
{
	for (struct watch **at = &object->watches; *at; at = &(*at)->next)
		if ((*at)->poller == poller) {
			struct watch *watch = *at;

			*at = watch->next;
			free(watch);
			return;
		}
}

struct object *open_poller(int fd)
{
	struct object *poller = new_object(POLLER, fd);

	poller->ready_last = &poller->ready;
	pollers++;
	return poller;
}

struct object *open_timer(int fd)
{
	struct object *timer = new_object(TIMER, fd);

	timer->deadline = NEVER;
	return timer;
}

static uint32_t reported(const struct watch *watch)
{
	return mask_of(watch->object) & (watch->events | EPOLLERR | EPOLLHUP);
}

static bool real_is_ready(int fd)
{
	struct pollfd real = { .fd = fd, .events = POLLIN };

	return real_poll(&real, 1, 0) > 0;
}

/* Whether the poller has something to report; also of descriptors that are not simulated, which
 * its own descriptor watches. */
uint32_t mask_of_poller(const struct object *poller)
{
	for (struct watch *watch = poller->ready; watch; watch = watch->next_ready)
		if (reported(watch))
			return EPOLLIN;
	return real_is_ready(poller->fd) ? EPOLLIN : 0;
}

int poller_control(struct object *poller, int operation, int fd, const struct epoll_event *event)
{
	struct object *object = object_of(fd);
	struct watch **at, *watch;

	if (!object)
		return kernel()(SYS_epoll_ctl, poller->fd, operation, fd, event) < 0 ? -errno : 0;
	for (at = &object->watches; *at && (*at)->poller != poller; at = &(*at)->next)
		;
	if (operation == EPOLL_CTL_ADD ? *at != NULL : *at == NULL)
		return operation == EPOLL_CTL_ADD ? -EEXIST : -ENOENT;
	if (operation == EPOLL_CTL_DEL) {
		watch = *at;
		*at = watch->next;
		unqueue(watch);
		free(watch);
		return 0;
	}
	if (operation == EPOLL_CTL_ADD) {
		watch = calloc(1, sizeof(*watch));
		if (!watch)
			return -ENOMEM;
		*watch = (struct watch) { .poller = poller, .object = object };
		*at = watch;
	}
	watch = *at;
	watch->events = event->events;
	watch->data = event->data.u64;
	if (reported(watch))
		enqueue(watch);
	return 0;
}

/* Takes what there is to report. */
static int collect(struct object *poller, struct epoll_event *out, int most)
{
	struct watch *watch = poller->ready;
	int count = 0;

	poller->ready = NULL;
	poller->ready_last = &poller->ready;
	while (watch) {
		struct watch *next = watch->next_ready;
		uint32_t mask = reported(watch);
		bool has_room = count < most;

		watch->is_queued = false;
		if (mask && has_room)
			out[count++] = (struct epoll_event) { .events = mask, .data.u64 = watch->data };
		/* A level-triggered one is reported until it has nothing more. */
		if (mask && (!has_room || !(watch->events & EPOLLET))) {
			watch->is_queued = true;
			watch->next_ready = NULL;
			*poller->ready_last = watch;
			poller->ready_last = &watch->next_ready;
		}
		watch = next;
	}
	if (count < most) {
		struct timespec none = { 0 };
		long real = kernel()(SYS_epoll_pwait2, poller->fd, out + count, most - count, &none, NULL, 0);

		count += real > 0 ? (int)real : 0;
	}
	return count;
}

/* Other threads of the library. Time does not pass while they have something to do. */

struct waiter {
	struct waiter *next;
	struct object *poller;
	struct pollfd *fds;
	size_t count;
};

static struct waiter *waiters;
/* Whether the first thread waits for them. */
static bool lets_others_work;
/* Number of them that do something. */
static int awake;
static __thread bool is_awake;

static void ends(void *unused)
{
	(void)unused;
	enter();
	awake -= is_awake;
	is_awake = false;
	leave();
}

static void falls_asleep(struct waiter *waiter)
{
	if (is_first())
		return;
	awake -= is_awake;
	is_awake = false;
	waiter->next = waiters;
	waiters = waiter;
}

static void wakes_up(struct waiter *waiter)
{
	struct waiter **at = &waiters;

	if (is_first())
		return;
	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	awake++;
	is_awake = true;
	pthread_setspecific(at_its_end, waiter);
}

static int look(struct pollfd *fds, size_t count);

bool others_have_work(void)
{
	if (awake)
		return true;
	for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
		if (waiter->poller ? mask_of_poller(waiter->poller) != 0
				   : look(waiter->fds, waiter->count) != 0)
			return true;
	return false;
}

/* The first thread lets them do it, for as long as 20 ms: they may wait for that one. */
static void let_others_work(void)
{
	if (!is_first())
		return;
	lets_others_work = true;
	for (int moment = 0; moment < 400 && others_have_work(); moment++) {
		leave();
		real_poll(NULL, 0, 50 * MICRO);
		enter();
	}
	lets_others_work = false;
}

/* Moments of another thread in which the first one has done nothing: some 20 ms, and a second, after which
 * time passes even if somebody seems to have something to do. */
enum { LONG_QUIET = 100, VERY_LONG = 5000 };

/* Whether the first thread waits for something, and not only for a processor, or for others to get one. */
static bool first_waits(void)
{
	char path[64], text[512], *state;
	ssize_t len;
	long fd;

	if (lets_others_work)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	fd = kernel()(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	len = kernel()(SYS_read, fd, text, sizeof(text) - 1);
	(void)kernel()(SYS_close, fd);
	text[len > 0 ? len : 0] = 0;
	state = strrchr(text, ')');
	return !state || state[1] != ' ' || state[2] != 'R';
}

/* Waits a moment until somebody else does something. The first thread lets time pass; other
 * threads only when that one has waited for a while. `quiet` counts their moments. */
static void wait_a_moment(struct pollfd *real, size_t count, uint64_t limit, int *quiet, uint64_t *seen)
{
	leave();
	simulated_yield();
	enter();
	if (*seen != first_calls) {
		*seen = first_calls;
		*quiet = 0;
	}
	if (is_first() || (++*quiet > LONG_QUIET && first_waits() && !others_have_work()) || *quiet > VERY_LONG) {
		skip(limit, 8);
		if (!is_first() || !event_count) {
			leave();
			real_poll(real, count, MILLI / 10);
			enter();
		}
		return;
	}
	leave();
	real_poll(real, count, MILLI / 5);
	enter();
}

static uint64_t limit_of(uint64_t time)
{
	return time == NEVER ? NEVER : now() + time;
}

/* epoll_wait(2); called without the lock, as wait_for_descriptors. */
int wait_for_poller(struct object *poller, struct epoll_event *out, int most, uint64_t time)
{
	struct pollfd real = { .fd = poller->fd, .events = POLLIN };
	struct waiter waiter = { .poller = poller };
	uint64_t limit, seen = 0;
	int count, quiet = 0;

	enter();
	falls_asleep(&waiter);
	limit = limit_of(time);
	pass(MICRO);
	count = collect(poller, out, most);
	if (!count && !time)
		nothing_yet();
	while (!count && time && now() < limit) {
		wait_a_moment(&real, 1, limit, &quiet, &seen);
		count = collect(poller, out, most);
	}
	if (count)
		progressed();
	wakes_up(&waiter);
	leave();
	return count;
}

static int look(struct pollfd *fds, size_t count)
{
	int ready = 0;

	for (size_t i = 0; i < count; i++) {
		struct object *object = fds[i].fd >= 0 ? object_of(fds[i].fd) : NULL;

		fds[i].revents = 0;
		if (object) {
			short wanted = fds[i].events | POLLERR | POLLHUP;

			fds[i].revents = (short)mask_of(object) & wanted;
		} else if (fds[i].fd >= 0) {
			real_poll(&fds[i], 1, 0);
		}
		ready += fds[i].revents != 0;
	}
	return ready;
}

int wait_for_descriptors(struct pollfd *fds, size_t count, uint64_t time)
{
	struct pollfd real[64];
	struct waiter waiter = { .fds = fds, .count = count };
	uint64_t limit, seen = 0;
	size_t real_count = 0;
	int ready, quiet = 0;

	enter();
	falls_asleep(&waiter);
	/* A poller's descriptor watches its real ones. */
	for (size_t i = 0; i < count && real_count < 64; i++) {
		struct object *object = fds[i].fd >= 0 ? object_of(fds[i].fd) : NULL;

		if (!object || object->kind == POLLER)
			real[real_count++] = fds[i];
	}
	limit = limit_of(time);
	pass(MICRO);
	ready = look(fds, count);
	if (!ready && !time)
		nothing_yet();
	while (!ready && time && now() < limit) {
		wait_a_moment(real, real_count, limit, &quiet, &seen);
		ready = look(fds, count);
	}
	if (ready)
		progressed();
	wakes_up(&waiter);
	leave();
	return ready;
}

/* A thread sleeps; called without the lock. */
void sleep_for(uint64_t time)
{
	uint64_t limit, seen = 0;
	int quiet = 0;

	enter();
	limit = limit_of(time);
	while (now() < limit)
		wait_a_moment(NULL, 0, limit, &quiet, &seen);
	leave();
}
