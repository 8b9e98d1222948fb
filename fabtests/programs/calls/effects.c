/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The effects of calls that a provider might have refused: it is not enough
 * that they return 0, the operation has to be carried out.
 */
#include <netinet/in.h>
#include <string.h>

#include "connect.h"
#include "memory.h"
#include "row.h"

static struct ct_peer *a(void)
{
	return &pair()->a;
}

static struct ct_peer *b(void)
{
	return &pair()->b;
}

/* A message from a to b, once the pair is open. */
static ssize_t passes(void)
{
	static char from[16] = "ping", to[16];

	memset(to, 0, sizeof(to));
	OK(fi_recv(ct_rx_ep(b()), to, sizeof(to), NULL, FI_ADDR_UNSPEC,
		   context));
	POST(a(), fi_send(a()->ep, from, sizeof(from), NULL, a()->to,
			  context + 1));
	ct_done(b(), &b()->rx, context);
	ct_done(a(), &a()->tx, context + 1);
	return strcmp(from, to) ? -FI_EOTHER : 0;
}

/* Vectors */
/* The completion stays in its queue. */
static void polls_one(struct fid_poll *set, void **context)
{
	double until = ct_now() + ct_patience();

	while (fi_poll(set, context, 2) != 1) {
		if (ct_now() > until)
			ct_fail(__FILE__, __LINE__, "fi_poll finds nothing");
		ct_nudge(b());
	}
}

COMPARED(RDM, "effect/av-receive-context-bits",
    (spec.rx_ctx_bits = 65, passes()))
COMPARED(RDM, "effect/av-receive-context-bits-negative",
    (spec.rx_ctx_bits = -1, passes()))
COMPARED(RDM, "effect/av-read-without-name",
    (spec.av_flags = FI_READ, passes()))
COMPARED(RDM, "effect/av-event-without-queue",
    (spec.av_flags = FI_EVENT, passes()))
COMPARED(RDM, "effect/av-peer-without-context",
    (spec.av_flags = FI_PEER, passes()))

/* Queues and counters */
COMPARED(BOTH, "effect/cq-unknown-condition",
    (spec.wait = FI_WAIT_UNSPEC, spec.wait_cond = UNKNOWN_NUMBER, passes()))
COMPARED(BOTH, "effect/cntr-unknown-events", ({
	spec.counters = FI_RECV;
	spec.events = UNKNOWN_NUMBER;
	OK(passes());
	ct_count(b(), CT_CNTR_RECV, 2);
	0;
    }))
COMPARED(BOTH, "effect/eq-write-unknown-flag", ({
	struct fi_eq_attr attr = { .flags = FI_WRITE };
	struct fi_eq_entry entry = { .data = 7 }, read = { 0 };
	struct fid_eq *queue;
	uint32_t event = 0;
	ssize_t ret;

	OK(fi_eq_open(fabric(), &attr, &queue, NULL));
	ret = fi_eq_write(queue, FI_NOTIFY, &entry, sizeof(entry),
			  UNKNOWN_FLAG);
	if (ret > 0)
		ret = fi_eq_read(queue, &event, &read, sizeof(read), 0);
	if (ret > 0)
		REQUIRE(event == FI_NOTIFY && read.data == 7);
	ret;
    }))
COMPARED(BOTH, "effect/poll-closed-with-queue", ({
	struct fid_poll *set;
	struct fi_poll_attr attr = { 0 };
	int ret;

	OK(fi_poll_open(a()->domain, &attr, &set));
	OK(fi_poll_add(set, &a()->tx.fid->fid, 0));
	ret = fi_close(&set->fid);
	if (!ret) {
		OK(passes());
		ct_close_pair(pair());
	}
	ret;
    }))
COMPARED(BOTH, "effect/poll-unknown-flags", ({
	struct fid_poll *set;
	struct fi_poll_attr attr = { 0 };
	void *context[2];
	int ret;

	OK(fi_poll_open(a()->domain, &attr, &set));
	ret = fi_poll_add(set, &a()->tx.fid->fid, UNKNOWN_FLAG);
	if (!ret) {
		POST(a(), fi_send(a()->ep, memory, 8, NULL, a()->to, memory));
		polls_one(set, context);
		ret = fi_poll_del(set, &a()->tx.fid->fid, UNKNOWN_FLAG);
		OK(fi_close(&set->fid));
	}
	ret;
    }))
COMPARED(BOTH, "effect/wait-set-closed-with-queue", ({
	struct fi_cq_attr attr = {
		.wait_obj = FI_WAIT_SET, .wait_set = waitset(),
	};
	struct fid_cq *queue;
	int ret;

	OK(fi_cq_open(domain(), &attr, &queue, NULL));
	ret = fi_close(&waitset()->fid);
	if (!ret) {
		fi_cq_read(queue, memory, 1);
		fi_cq_signal(queue);
		OK(fi_close(&queue->fid));
	}
	ret;
    }))

/* Regions: a write of one number to b's */
static uint64_t place[4];

static int written(struct fid_mr *region, int index)
{
	uint64_t value = 42;
	uint64_t base = ct_mr_mode(b()) & FI_MR_VIRT_ADDR ?
			(uintptr_t)place : 0;

	POST(a(), fi_write(a()->ep, &value, sizeof(value), NULL, a()->to,
			   base + 8 * (unsigned)index, fi_mr_key(region),
			   context));
	ct_done(a(), &a()->tx, context);
	UNTIL(b(), place[index] == 42);
	for (int i = 0; i < 4; i++)
		REQUIRE(place[i] == (i == index ? 42 : 0));
	return 0;
}

static int registered(uint64_t offset, uint64_t key, uint64_t flags)
{
	struct fid_mr *region;
	int ret = fi_mr_reg(b()->domain, place, sizeof(place), FI_REMOTE_WRITE,
			    offset, key, flags, &region, NULL);

	return ret ? ret : written(region, 1);
}

static int registered_as(uint64_t flags, struct fi_mr_attr attr)
{
	struct iovec iov = { place, sizeof(place) };
	struct fid_mr *region;
	int ret;

	attr.mr_iov = &iov;
	attr.iov_count = 1;
	attr.access = FI_REMOTE_WRITE;
	attr.requested_key = 5;
	ret = fi_mr_regattr(b()->domain, &attr, flags, &region);
	return ret ? ret : written(region, 1);
}

COMPARED(BOTH, "effect/mr-plain", registered(0, 5, 0))
COMPARED(BOTH, "effect/mr-offset", registered(8, 5, 0))
COMPARED(BOTH, "effect/mr-attr-offset",
    registered_as(0, (struct fi_mr_attr) { .offset = 8 }))
COMPARED(BOTH, "effect/mr-key-not-available",
    registered(0, FI_KEY_NOTAVAIL, 0))
COMPARED(BOTH, "effect/mr-unknown-flag", registered(0, 5, UNKNOWN_FLAG))
COMPARED(BOTH, "effect/mr-host-alloc", registered(0, 5, FI_HMEM_HOST_ALLOC))
COMPARED(BOTH, "effect/mr-device-only", registered(0, 5, FI_HMEM_DEVICE_ONLY))
COMPARED(BOTH, "effect/mr-attr-host-alloc",
    registered_as(FI_HMEM_HOST_ALLOC, (struct fi_mr_attr) { 0 }))
COMPARED(BOTH, "effect/mr-attr-device-only",
    registered_as(FI_HMEM_DEVICE_ONLY, (struct fi_mr_attr) { 0 }))
COMPARED(BOTH, "effect/mr-auth-key-nowhere",
    registered_as(0, (struct fi_mr_attr) { .auth_key_size = 16 }))
COMPARED(BOTH, "effect/mr-pieces", ({
	struct iovec iov[2] = { { place, 8 }, { place + 1, 24 } };
	struct fid_mr *region;
	int ret = fi_mr_regv(b()->domain, iov, 2, FI_REMOTE_WRITE, 0, 5, 0,
			     &region, NULL);

	ret ? ret : written(region, 1);
    }))
COMPARED(BOTH, "effect/mr-pieces-beyond", ({
	struct iovec iov[64];
	size_t count = b()->info->domain_attr->mr_iov_limit + 1;
	struct fid_mr *region;
	int ret;

	for (size_t i = 0; i < count; i++)
		iov[i] = (struct iovec) { (char *)place + i, 1 };
	iov[count - 1].iov_len = sizeof(place) - count + 1;
	ret = fi_mr_regv(b()->domain, iov, count, FI_REMOTE_WRITE, 0, 5, 0,
			 &region, NULL);
	ret ? ret : written(region, 1);
    }))

COMPARED(BOTH, "effect/mr-dmabuf", ({
	struct fi_mr_dmabuf file = {
		.fd = -1, .len = sizeof(place), .base_addr = place,
	};
	struct fi_mr_attr attr = {
		.dmabuf = &file, .iov_count = 1, .access = FI_REMOTE_WRITE,
		.requested_key = 5,
	};
	struct fid_mr *region;
	int ret = fi_mr_regattr(b()->domain, &attr, FI_MR_DMABUF, &region);

	ret ? ret : written(region, 1);
    }))
COMPARED(BOTH, "effect/mr-wraps", ({
	struct fid_mr *region;
	int ret = fi_mr_reg(b()->domain, place, SIZE_MAX, FI_REMOTE_WRITE, 0, 5,
			    0, &region, NULL);

	ret ? ret : written(region, 1);
    }))

/* Shared receive contexts */
static void strange(struct fi_rx_attr *attr)
{
	attr->size = SIZE_MAX;
	attr->caps |= UNKNOWN_FLAG;
	attr->op_flags |= UNKNOWN_FLAG;
	attr->iov_limit = SIZE_MAX;
	attr->msg_order = ~0ULL;
}

COMPARED(BOTH, "effect/srx", (spec.srx = true, passes()))
COMPARED(BOTH, "effect/srx-attributes",
    (spec.srx = true, spec.receives = strange, passes()))
COMPARED(BOTH, "effect/srx-closed-early", ({
	int ret;

	spec.srx = true;
	OK(passes());
	ret = fi_close(&b()->srx->fid);
	if (!ret) {
		b()->srx = NULL;
		ct_close_pair(pair());
	}
	ret;
    }))

/* The same, and a message arrives before the endpoints are closed. */
COMPARED(BOTH, "effect/srx-closed-and-used", ({
	int ret;

	spec.srx = true;
	OK(passes());
	ret = fi_close(&b()->srx->fid);
	if (!ret) {
		b()->srx = NULL;
		POST(a(), fi_send(a()->ep, memory, 64, NULL, a()->to, context));
		ct_done(a(), &a()->tx, context);
		for (int i = 0; i < 1000; i++)
			ct_progress(b());
		ct_close_pair(pair());
	}
	ret;
    }))

/* Atomic operations that do not exist */
static int atomic_ends(enum fi_datatype datatype, enum fi_op op)
{
	struct fid_mr *region;
	uint64_t value = 42;
	struct ct_completion done;

	spec.caps |= FI_ATOMIC;
	OK(fi_mr_reg(b()->domain, place, sizeof(place),
		     FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 5, 0, &region, NULL));
	if (CT_POST(a(), fi_atomic(a()->ep, &value, 1, NULL, a()->to,
				   ct_mr_mode(b()) & FI_MR_VIRT_ADDR ?
				   (uintptr_t)place : 0, fi_mr_key(region),
				   datatype, op, context)))
		return -FI_EOPNOTSUPP;
	done = ct_next(a(), &a()->tx);
	return done.err ? -done.err : (int)place[0];
}

COMPARED(BOTH, "effect/atomic-sum", atomic_ends(FI_UINT64, FI_SUM))
COMPARED(BOTH, "effect/atomic-unknown-operation",
    atomic_ends(FI_UINT64, UNKNOWN_NUMBER))
COMPARED(BOTH, "effect/atomic-unknown-datatype",
    atomic_ends(UNKNOWN_NUMBER, FI_SUM))
COMPARED(BOTH, "effect/atomic-bits-of-a-float", atomic_ends(FI_FLOAT, FI_BXOR))
COMPARED(BOTH, "effect/atomic-swap-with-fi_atomic",
    atomic_ends(FI_UINT64, FI_CSWAP))
COMPARED(BOTH, "effect/atomic-read-with-fi_atomic",
    atomic_ends(FI_UINT64, FI_ATOMIC_READ))

/* Receives that claim messages without a peek */
COMPARED(BOTH, "effect/claim-untagged", ({
	struct iovec iov = { memory, 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};
	ssize_t ret = fi_recvmsg(b()->ep, &msg, FI_COMPLETION | FI_CLAIM);

	if (!ret) {
		POST(a(), fi_send(a()->ep, "ping", 5, NULL, a()->to,
				  context + 1));
		ct_done(b(), &b()->rx, context);
	}
	ret;
    }))

/* A peek at untagged messages without any message: whether it takes the next
 * one. */
COMPARED(BOTH, "effect/peek-untagged", ({
	struct iovec iov = { memory, 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};
	ssize_t ret = fi_recvmsg(b()->ep, &msg, FI_COMPLETION | FI_PEEK);

	if (!ret) {
		POST(a(), fi_send(a()->ep, "ping", 5, NULL, a()->to,
				  context + 1));
		ret = -ct_next(b(), &b()->rx).err;
	}
	ret;
    }))

/* Names: an endpoint that is renamed to the other family, and one that is open */
COMPARED(RDM, "effect/setname-other-family", ({
	static unsigned char name[64];
	int ret;

	internet();
	ret = fi_setname(&bound_ep()->fid, other_family(),
			 sizeof(*other_family()));
	if (!ret)
		ret = fi_enable(bound_ep());
	if (!ret) {
		ct_name(&ep()->fid, name, sizeof(name));
		ret = ((struct sockaddr *)name)->sa_family != AF_INET6;
	}
	ret;
    }))
COMPARED(RDM, "effect/setname-enabled", ({
	static unsigned char before[64], after[64];
	size_t len = sizeof(before);
	int ret;

	internet();
	ct_name(&b()->ep->fid, before, len);
	ret = fi_setname(&b()->ep->fid, free_address(),
			 sizeof(*free_address()));
	if (!ret) {
		ct_name(&b()->ep->fid, after, len);
		OK(passes());
		if (!memcmp(before, after, len))
			ret = 1;
	}
	ret;
    }))

/* Passive endpoints */
static int request_arrives(struct fid_pep *at, void *name)
{
	struct ct_event event;
	unsigned char own[256];

	if (!name) {
		ct_name(&at->fid, own, sizeof(own));
		name = own;
	}
	OK(fi_connect(ep(), name, NULL, 0));
	ct_wait_request(peer(), &event);
	return 0;
}

COMPARED(MSG, "effect/passive-bound-twice", ({
	int ret = fi_pep_bind(new_pep(), &eq()->fid, 0);

	ret ? ret : (fi_listen(new_pep()), request_arrives(new_pep(), NULL));
    }))
COMPARED(MSG, "effect/passive-second-queue", ({
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_eq *second;
	struct fid_pep *pep;
	int ret;

	OK(fi_eq_open(fabric(), &attr, &second, NULL));
	OK(fi_passive_ep(fabric(), info(), &pep, NULL));
	OK(fi_pep_bind(pep, &second->fid, 0));
	ret = fi_pep_bind(pep, &eq()->fid, 0);
	ret ? ret : (fi_listen(pep), request_arrives(pep, NULL));
    }))
COMPARED(MSG, "effect/passive-setname-other-family", ({
	int ret = fi_setname(&new_pep()->fid, other_family(),
			     sizeof(*other_family()));
	unsigned char name[64];

	if (!ret)
		ret = fi_listen(new_pep());
	if (!ret) {
		ct_name(&new_pep()->fid, name, sizeof(name));
		REQUIRE(((struct sockaddr *)name)->sa_family == AF_INET6);
		ret = request_arrives(new_pep(), name);
	}
	ret;
    }))
COMPARED(MSG, "effect/passive-setname-listening", ({
	static unsigned char before[64], after[64];
	int ret;

	ct_name(&listener()->fid, before, sizeof(before));
	ret = fi_setname(&new_pep()->fid, free_address(),
			 sizeof(*free_address()));
	if (!ret) {
		ct_name(&listener()->fid, after, sizeof(after));
		ret = memcmp(before, after, sizeof(after)) ? 2 : 1;
		fi_connect(ep(), before, NULL, 0);
		ct_any_event(peer());
	}
	ret;
    }))
COMPARED(RDM, "effect/passive-of-datagrams", ({
	struct fid_pep *pep;
	int ret = fi_passive_ep(fabric(), info(), &pep, NULL);

	if (!ret)
		ret = fi_pep_bind(pep, &eq()->fid, 0);
	if (!ret)
		ret = fi_listen(pep);
	ret;
    }))

/* A connection of an endpoint that has a queue of one kind only. */
static int connects_with(struct fid *queue, uint64_t flags)
{
	struct fid_ep *from, *accepted;
	unsigned char name[CT_NAME];
	struct ct_event event;
	int ret;

	OK(fi_endpoint(domain(), info(), &from, NULL));
	OK(fi_ep_bind(from, queue, flags));
	ct_name(&listener()->fid, name, sizeof(name));
	ret = fi_connect(from, name, NULL, 0);
	if (ret)
		return ret;
	ct_wait_request(peer(), &event);
	OK(fi_endpoint(domain(), event.info, &accepted, NULL));
	OK(fi_ep_bind(accepted, &eq()->fid, 0));
	OK(fi_ep_bind(accepted, &cq()->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_accept(accepted, NULL, 0));
	ct_event_of(peer(), FI_CONNECTED);
	OK(fi_recv(accepted, memory, 64, NULL, 0, context));
	POST(peer(), fi_send(from, memory + 64, 64, NULL, 0, context + 1));
	do {
		/* Both ends report there, if one has a queue at all. */
	} while (ct_next(peer(), &peer()->tx).context != context);
	return 0;
}

COMPARED(MSG, "effect/connect-without-eq",
    connects_with(&cq()->fid, FI_TRANSMIT | FI_RECV))
COMPARED(MSG, "effect/connect-without-cq", connects_with(&eq()->fid, 0))
COMPARED(BOTH, "effect/second-srx", ({
	struct fid_ep *second;
	int ret;

	spec.srx = true;
	OK(fi_srx_context(domain(), info()->rx_attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &srx()->fid, 0));
	ret = fi_ep_bind(new_ep(), &second->fid, 0);
	if (!ret) {
		OK(fi_ep_bind(new_ep(), &eq()->fid, 0));
		OK(fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | FI_RECV));
		if (peer()->av)
			OK(fi_ep_bind(new_ep(), &peer()->av->fid, 0));
		OK(fi_enable(new_ep()));
		OK(fi_close(&new_ep()->fid));
		ret = fi_close(&srx()->fid);
	}
	ret;
    }))
