/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "connect.h"

struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
char memory[1 << 17];
struct fi_context2 context[8];

struct ct_peer *peer(void)
{
	static struct ct_peer peer;

	if (!peer.domain)
		ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	return &peer;
}

struct fi_info *info(void)
{
	return peer()->info;
}

struct fid_fabric *fabric(void)
{
	return peer()->fabric;
}

struct fid_domain *domain(void)
{
	return peer()->domain;
}

struct fid_eq *eq(void)
{
	return peer()->eq.fid;
}

struct fid_cq *cq(void)
{
	return peer()->tx.fid;
}

struct fid_av *av(void)
{
	static struct fid_av *av;
	struct fi_av_attr attr = { 0 };

	if (peer()->av)
		return peer()->av;
	if (!av)
		OK(fi_av_open(domain(), &attr, &av, NULL));
	return av;
}

struct fid_cntr *cntr(void)
{
	static struct fid_cntr *cntr;
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	if (!cntr)
		OK(fi_cntr_open(domain(), &attr, &cntr, NULL));
	return cntr;
}

struct fid_mr *mr(void)
{
	static struct fid_mr *mr;

	if (!mr)
		OK(fi_mr_reg(domain(), memory, sizeof(memory), FI_REMOTE_READ,
			     0, 77, 0, &mr, NULL));
	return mr;
}

struct fid_ep *srx(void)
{
	static struct fid_ep *srx;

	if (peer()->srx)
		return peer()->srx;
	if (!srx)
		OK(fi_srx_context(domain(), info()->rx_attr, &srx, NULL));
	return srx;
}

struct fid_poll *pollset(void)
{
	static struct fid_poll *set;
	struct fi_poll_attr attr = { 0 };

	if (!set)
		OK(fi_poll_open(domain(), &attr, &set));
	return set;
}

struct fid_wait *waitset(void)
{
	static struct fid_wait *set;
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	if (!set)
		OK(fi_wait_open(fabric(), &attr, &set));
	return set;
}

struct fid_ep *new_ep(void)
{
	static struct fid_ep *ep;

	if (!ep)
		OK(fi_endpoint(domain(), info(), &ep, NULL));
	return ep;
}

struct fid_ep *bound_ep(void)
{
	if (!peer()->ep)
		ct_open_ep_disabled(peer(), info());
	return peer()->ep;
}

struct fid_ep *ep(void)
{
	static bool enabled;

	if (!enabled)
		OK(fi_enable(bound_ep()));
	enabled = true;
	return bound_ep();
}

struct fid_pep *new_pep(void)
{
	static struct fid_pep *pep;

	if (!pep) {
		OK(fi_passive_ep(fabric(), info(), &pep, NULL));
		OK(fi_pep_bind(pep, &eq()->fid, 0));
	}
	return pep;
}

struct fid_pep *listener(void)
{
	static bool listens;

	if (!listens)
		OK(fi_listen(new_pep()));
	listens = true;
	return new_pep();
}

struct ct_pair *pair(void)
{
	static struct ct_pair pair;

	if (!pair.a.domain) {
		ct_open_pair(&pair, &spec);
		ct_warm_up(&pair);
	}
	return &pair;
}

int bind_to(struct fid *object, struct fid *other, uint64_t flags)
{
	return object->ops->bind(object, other, flags);
}

static struct sockaddr_in *at(const char *node)
{
	static struct sockaddr_in addr;

	addr = (struct sockaddr_in) { .sin_family = AF_INET };
	REQUIRE(inet_pton(AF_INET, node, &addr.sin_addr) == 1);
	return &addr;
}

struct sockaddr_in *foreign(void)
{
	/* Of a network for documentation (RFC 5737). */
	return at("192.0.2.1");
}

struct sockaddr_in *free_address(void)
{
	return at("127.0.0.1");
}

static bool is_text(void)
{
	struct fi_info *found = ct_getinfo(&spec);
	bool is = found->addr_format == FI_ADDR_STR;

	fi_freeinfo(found);
	return is;
}

int internet(void)
{
	if (is_text())
		SKIP("addresses are text");
	return 0;
}

static char text[] = "fi_ns://somewhere";

void *somewhere(void)
{
	struct sockaddr_in *addr = at("127.0.0.1");

	addr->sin_port = htons(7471);
	return is_text() ? (void *)text : addr;
}

size_t somewhere_size(void)
{
	return is_text() ? sizeof(text) : sizeof(struct sockaddr_in);
}

struct sockaddr_in6 *other_family(void)
{
	static struct sockaddr_in6 addr = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT,
	};

	return &addr;
}

struct sockaddr_in *taken(void)
{
	static struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	REQUIRE(fd >= 0);
	REQUIRE(!bind(fd, (struct sockaddr *)free_address(), sizeof(addr)));
	REQUIRE(!listen(fd, 1));
	REQUIRE(!getsockname(fd, (struct sockaddr *)&addr, &len));
	return &addr;
}
