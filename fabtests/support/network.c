/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define ADDRESS "10.77.0.1"
#define LINK_LOCAL "fe80::77"

static void set_flags(int fd, const char *interface, bool up)
{
	struct ifreq request = { 0 };

	strcpy(request.ifr_name, interface);
	REQUIRE(!ioctl(fd, SIOCGIFFLAGS, &request));
	if (up)
		request.ifr_flags |= IFF_UP | IFF_RUNNING;
	else
		request.ifr_flags &= ~IFF_UP;
	REQUIRE(!ioctl(fd, SIOCSIFFLAGS, &request));
}

void ct_set_network(bool up)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo:1" };
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;

	REQUIRE(fd >= 0);
	if (up) {
		set_flags(fd, "lo", true);
		address->sin_family = AF_INET;
		REQUIRE(inet_pton(AF_INET, ADDRESS, &address->sin_addr) == 1);
		REQUIRE(!ioctl(fd, SIOCSIFADDR, &request));
	} else {
		set_flags(fd, "lo:1", false);
	}
	close(fd);
}

static void leave_network(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no privilege for a network of our own");
}

/* The system takes a moment until an address that it has been given is valid. */
static void wait_for_address(int fd, const struct in6_addr *address,
			     int interface)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6,
				   .sin6_addr = *address,
				   .sin6_scope_id = (uint32_t)interface };

	while (bind(fd, (struct sockaddr *)&at, sizeof(at))) {
		REQUIRE(errno == EADDRNOTAVAIL);
		sched_yield();
	}
}

void ct_own_link(void)
{
	/* struct in6_ifreq, whose header conflicts with netinet/in.h. */
	struct {
		struct in6_addr address;
		uint32_t prefix;
		int interface;
	} request = { .prefix = 64 };
	int fd;

	leave_network();
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		SKIP("no IPv6");
	set_flags(fd, "lo", true);
	request.interface = (int)if_nametoindex("lo");
	REQUIRE(inet_pton(AF_INET6, LINK_LOCAL, &request.address) == 1);
	if (ioctl(fd, SIOCSIFADDR, &request))
		SKIP("no IPv6 on the loopback interface");
	wait_for_address(fd, &request.address, request.interface);
	close(fd);
	ct_opt.source = LINK_LOCAL "%lo";
}

/* Runs ip(8), of Debian's iproute2; whether it succeeded. */
static bool ip(const char *format, ...)
{
	char command[256] = "exec ip ";
	size_t at = strlen(command);
	va_list args;

	va_start(args, format);
	vsnprintf(command + at, sizeof(command) - at, format, args);
	va_end(args);
	return !system(command);
}

/* The addresses of the interfaces of one side. */
struct side {
	char prefix;		/* of their names */
	const char *link_local;	/* of each; NULL: one of the link's network */
	int host;		/* its last byte then */
	int count;
};

static void give_addresses(const struct side *side)
{
	for (int i = 0; i < side->count; i++) {
		REQUIRE(ip("link set %c%d addrgenmode none up", side->prefix, i));
		if (side->link_local)
			REQUIRE(ip("-6 addr add %s/64 dev %c%d nodad",
				   side->link_local, side->prefix, i));
		else
			REQUIRE(ip("addr add 10.78.%d.%d/24 dev %c%d", i,
				   side->host, side->prefix, i));
	}
}

static void (*far_side)(int fd);
static struct side far_end;

static void live_far(int fd)
{
	char go;

	leave_network();
	ct_tell(fd, "", 1);
	if (read(fd, &go, 1) != 1)
		_exit(0);
	give_addresses(&far_end);
	ct_tell(fd, "", 1);
	if (read(fd, &go, 1) == 1)
		far_side(fd);
}

static struct ct_child make_links(const struct side *near_end)
{
	struct ct_child child;
	char ready;

	if (!ip("-V >/dev/null"))
		SKIP("no ip(8)");
	leave_network();
	child = ct_spawn(live_far);
	ct_begin(&child);
	ct_hear(child.fd, &ready, 1);
	for (int i = 0; i < near_end->count; i++)
		if (!ip("link add a%d index %d type veth peer name b%d index %d netns %d",
			i, 10 + i, i, 9 + near_end->count - i, (int)child.pid))
			SKIP("no pairs of virtual interfaces");
	give_addresses(near_end);
	ct_tell(child.fd, "", 1);
	ct_hear(child.fd, &ready, 1);
	return child;
}

struct ct_child ct_two_links(void (*far)(int fd))
{
	struct side near_end = { .prefix = 'a', .link_local = CT_NEAR, .count = 2 };

	far_side = far;
	far_end = (struct side) { .prefix = 'b', .link_local = CT_FAR, .count = 2 };
	return make_links(&near_end);
}

struct ct_child ct_links(int count, void (*far)(int fd))
{
	struct side near_end = { .prefix = 'a', .host = 1, .count = count };

	far_side = far;
	far_end = (struct side) { .prefix = 'b', .host = 2, .count = count };
	return make_links(&near_end);
}

void ct_set_link(int i, bool up)
{
	REQUIRE(ip("link set a%d %s", i, up ? "up" : "down"));
}

unsigned long long ct_link_sent(int i)
{
	FILE *file = fopen("/proc/self/net/dev", "re");
	unsigned long long sent = 0;
	char line[512], name[16];

	REQUIRE(file);
	snprintf(name, sizeof(name), "a%d:", i);
	while (fgets(line, sizeof(line), file)) {
		char *at = strstr(line, name);

		if (at && sscanf(at + strlen(name),
				 "%*u %*u %*u %*u %*u %*u %*u %*u %llu",
				 &sent) == 1)
			break;
	}
	fclose(file);
	return sent;
}

void ct_own_network(void)
{
	leave_network();
	ct_opt.source = ADDRESS;
	ct_set_network(true);
}
