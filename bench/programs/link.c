/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A bad link in user space, for kernels without netem: joins two network
 * namespaces by a tunnel device in each and passes packets between them,
 * late, and without those that get lost.
 *
 *   link -d usec -l percent namespace-a device-a namespace-b device-b
 *
 * Prints "ready" when both devices exist and runs until it is killed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LARGEST 65536
#define QUEUE 8192		/* packets on their way in one direction */

struct packet {
	double due;
	size_t len;
	unsigned char *data;
};

/* Packets from one device to the other, in order of arrival. */
struct direction {
	int from, to;
	struct packet queue[QUEUE];
	size_t first, count;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* A tunnel device inside a named network namespace. */
static int open_device(const char *space, const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[256];
	int ns, fd;

	snprintf(path, sizeof(path), "/run/netns/%s", space);
	ns = open(path, O_RDONLY);
	if (ns < 0 || setns(ns, CLONE_NEWNET))
		die(path);
	close(ns);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
	if (fd < 0)
		die("/dev/net/tun");
	snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
	if (ioctl(fd, TUNSETIFF, &request))
		die(name);
	return fd;
}

/* Receives what has arrived; a full queue drops packets, as a router's does. */
static void take(struct direction *d, double delay, double loss)
{
	static unsigned char buffer[LARGEST];
	ssize_t len;

	while ((len = read(d->from, buffer, sizeof(buffer))) > 0) {
		struct packet *p;

		if (drand48() * 100 < loss || d->count == QUEUE)
			continue;
		p = &d->queue[(d->first + d->count) % QUEUE];
		p->data = malloc((size_t)len);
		if (!p->data)
			continue;
		memcpy(p->data, buffer, (size_t)len);
		p->len = (size_t)len;
		p->due = now() + delay;
		d->count++;
	}
}

/* Forwards the packets that are due; returns the seconds until the next one,
 * or -1. */
static double hand_on(struct direction *d)
{
	while (d->count) {
		struct packet *p = &d->queue[d->first];
		double wait = p->due - now();

		if (wait > 0)
			return wait;
		if (write(d->to, p->data, p->len) < 0)
			perror("write");
		free(p->data);
		d->first = (d->first + 1) % QUEUE;
		d->count--;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static struct direction there, back;
	double delay = 0, loss = 0;
	int c, a, b;

	while ((c = getopt(argc, argv, "d:l:")) != -1) {
		if (c == 'd')
			delay = atof(optarg) * 1e-6;
		else if (c == 'l')
			loss = atof(optarg);
		else
			return 1;
	}
	if (argc - optind != 4)
		return 1;
	a = open_device(argv[optind], argv[optind + 1]);
	b = open_device(argv[optind + 2], argv[optind + 3]);
	there = (struct direction) { .from = a, .to = b };
	back = (struct direction) { .from = b, .to = a };
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[2] = {
			{ .fd = a, .events = POLLIN },
			{ .fd = b, .events = POLLIN },
		};
		double one = hand_on(&there), two = hand_on(&back);
		double wait = one < 0 ? two : two < 0 || one < two ? one : two;
		struct timespec limit = {
			.tv_sec = (time_t)wait,
			.tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9),
		};

		if (ppoll(fds, 2, wait < 0 ? NULL : &limit, NULL) < 0)
			die("poll");
		take(&there, delay, loss);
		take(&back, delay, loss);
	}
}
