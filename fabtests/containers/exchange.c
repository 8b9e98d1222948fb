/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * exchange PROVIDER NODE FD FIRST: one of two processes that are connected by the socket FD. They pass
 * messages of 8 bytes and of a mebibyte both ways, and each writes to and reads from the other's memory.
 * Prints "data" if all of it arrived, or "error" with the call that failed. FIRST is 1 for one of
 * them, 0 for the other. With FD -1 it forks the other.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define LONG (1 << 20)
#define REGION (1 << 16)

/* What one process tells the other. */
struct card {
	int failed;
	char name[256];
	uint64_t addr, key;
};

static struct fi_info *info;
static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t peer;
static int fd, first, completions;
static char out[LONG], in[LONG], region[REGION];
static struct fi_context2 tx_context, rx_context;

/* Ends this process, and the other one's waiting. */
static void fail(const char *call, long error)
{
	printf("error %s: %s\n", call, fi_strerror((int)labs(error)));
	fflush(stdout);
	_exit(0);
}

static void ok(const char *call, long ret)
{
	if (ret < 0)
		fail(call, ret);
}
#define OK(function, ...) ok(#function, function(__VA_ARGS__))

static void gone(void)
{
	printf("the other one failed\n");
	fflush(stdout);
	_exit(0);
}

static void hear(void *data, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t more = read(fd, (char *)data + got, len - got);

		if (more <= 0)
			gone();
		got += (size_t)more;
	}
}

static void tell(const void *data, size_t len)
{
	if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		gone();
}

static void drive(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = fi_cq_read(cq, &entry, 1);

	if (ret == 1) {
		completions++;
	} else if (ret == -FI_EAVAIL) {
		fi_cq_readerr(cq, &failed, 0);
		fail("completion", failed.err);
	} else if (ret != -FI_EAGAIN) {
		fail("fi_cq_read", ret);
	} else {
		usleep(20);
	}
}

/* Drives until there are so many completions. */
static void until(int count)
{
	char byte;

	while (completions < count) {
		drive();
		if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
			gone();
	}
	completions -= count;
}

/* Both are here; this one drives meanwhile. */
static void meet(void)
{
	char byte = 0;

	tell(&byte, 1);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
		if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
			gone();
		drive();
	}
}

static void open_all(const char *provider, const char *node, struct card *card)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_mr *mr;
	size_t len = sizeof(card->name);
	struct fid_av *av;
	struct card other;
	bool has_node = strcmp(node, "none");

	hints->fabric_attr->prov_name = strdup(provider);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				      FI_MR_VIRT_ADDR;
	OK(fi_getinfo, FI_VERSION(1, 20), has_node ? node : NULL, NULL, has_node ? FI_SOURCE : 0,
	   hints, &info);
	OK(fi_fabric, info->fabric_attr, &fabric, NULL);
	OK(fi_domain, fabric, info, &domain, NULL);
	OK(fi_cq_open, domain, &cq_attr, &cq, NULL);
	OK(fi_av_open, domain, &av_attr, &av, NULL);
	OK(fi_endpoint, domain, info, &ep, NULL);
	OK(fi_ep_bind, ep, &cq->fid, FI_TRANSMIT | FI_RECV);
	OK(fi_ep_bind, ep, &av->fid, 0);
	OK(fi_enable, ep);
	OK(fi_getname, &ep->fid, card->name, &len);
	OK(fi_mr_reg, domain, region, REGION, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL);
	card->key = fi_mr_key(mr);
	card->addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)region : 0;
	tell(card, sizeof(*card));
	hear(&other, sizeof(other));
	if (fi_av_insert(av, other.name, 1, &peer, 0, NULL) != 1)
		fail("fi_av_insert", FI_EINVAL);
	card->addr = other.addr;
	card->key = other.key;
}

static void post(const char *call, long ret, int *posted)
{
	if (ret == -FI_EAGAIN)
		return drive();
	ok(call, ret);
	*posted = 1;
}
#define POST(function, ...)						\
	for (int posted_ = 0; !posted_;)				\
		post(#function, function(__VA_ARGS__), &posted_)

/* One process sends, the other receives. */
static void pass(bool sends, size_t len, char byte)
{
	if (!sends) {
		memset(in, 0, len);
		POST(fi_recv, ep, in, len, NULL, FI_ADDR_UNSPEC, &rx_context);
	}
	meet();
	if (sends) {
		memset(out, byte, len);
		POST(fi_send, ep, out, len, NULL, peer, &tx_context);
	}
	until(1);
	for (size_t i = 0; !sends && i < len; i++)
		if (in[i] != byte)
			fail("wrong data", 0);
	meet();
}

static void access_memory(bool acts, const struct card *there, char byte)
{
	meet();
	if (acts) {
		memset(out, byte, REGION);
		POST(fi_write, ep, out, REGION, NULL, peer, there->addr, there->key, &tx_context);
		until(1);
		memset(in, 0, REGION);
		POST(fi_read, ep, in, REGION, NULL, peer, there->addr, there->key, &tx_context);
		until(1);
	}
	meet();
	for (size_t i = 0; i < REGION; i++)
		if ((acts ? in : region)[i] != byte)
			fail("wrong data", 0);
}

int main(int argc, char **argv)
{
	static struct card card;
	pid_t child = -1;

	if (argc != 5)
		return 2;
	fd = atoi(argv[3]);
	first = atoi(argv[4]);
	if (fd < 0) {
		int ends[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			return 2;
		child = fork();
		if (child < 0)
			return 2;
		first = child != 0;
		fd = ends[first];
		close(ends[!first]);
	}
	open_all(argv[1], argv[2], &card);
	pass(first, 8, 'a');
	pass(!first, LONG, 'b');
	pass(first, LONG, 'c');
	access_memory(first, &card, 'd');
	access_memory(!first, &card, 'e');
	fi_close(&ep->fid);
	printf("data\n");
	fflush(stdout);
	if (child > 0)
		waitpid(child, NULL, 0);
	return 0;
}
