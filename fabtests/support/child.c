/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "child.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct ct_child ct_spawn(void (*run)(int fd))
{
	struct ct_child child;
	int fds[2];
	char go;

	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	child.fd = fds[0];
	child.pid = fork();
	REQUIRE(child.pid >= 0);
	if (!child.pid) {
		close(fds[0]);
		if (read(fds[1], &go, 1) != 1)
			_exit(0);
		run(fds[1]);
		_exit(0);
	}
	close(fds[1]);
	return child;
}

void ct_begin(const struct ct_child *child)
{
	ct_tell(child->fd, "g", 1);
}

void ct_join(struct ct_child *child)
{
	int status;

	REQUIRE(waitpid(child->pid, &status, 0) == child->pid);
	REQUIRE(WIFEXITED(status));
	REQUIRE(WEXITSTATUS(status) == 0);
	close(child->fd);
}

void ct_kill(struct ct_child *child)
{
	int status;

	REQUIRE(!kill(child->pid, SIGKILL));
	REQUIRE(waitpid(child->pid, &status, 0) == child->pid);
	REQUIRE(WIFSIGNALED(status));
	close(child->fd);
}

void ct_tell(int fd, const void *data, size_t len)
{
	REQUIRE(write(fd, data, len) == (ssize_t)len);
}

void ct_hear(int fd, void *data, size_t len)
{
	char *at = data;

	while (len) {
		ssize_t got = read(fd, at, len);

		REQUIRE(got > 0);
		at += got;
		len -= (size_t)got;
	}
}
