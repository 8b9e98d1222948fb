/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
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
	/* struct in6_ifreq, whose header does not go with netinet/in.h. */
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

void ct_own_network(void)
{
	leave_network();
	ct_opt.source = ADDRESS;
	ct_set_network(true);
}
