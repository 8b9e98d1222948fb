/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "network.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define ADDRESS "10.77.0.1"

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

void ct_own_network(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no privilege for a network of our own");
	ct_opt.source = ADDRESS;
	ct_set_network(true);
}
