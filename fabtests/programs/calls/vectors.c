/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Address vectors and memory registrations. */
#include <netinet/in.h>
#include <string.h>

#include "row.h"

/* fi_av(3) */
static struct fid_av *opened_av;
static fi_addr_t addr[4];

#define open_av(...)							\
	fi_av_open(domain(), &(struct fi_av_attr) { __VA_ARGS__ },	\
		   &opened_av, NULL)
#define AV(...) (FIRST(open_av(__VA_ARGS__)), opened_av)

/* The number of inserted addresses: none if the call fails as a whole. */
static int at_least_none(int inserted)
{
	return inserted < 0 ? 0 : inserted;
}

ROW(BOTH, "av/no-attributes", "fi_av(3)", -FI_EINVAL,
    fi_av_open(domain(), NULL, &opened_av, NULL))
ROW(BOTH, "av/no-place", "fi_av(3)", -FI_EINVAL,
    fi_av_open(domain(), &(struct fi_av_attr) { 0 }, NULL, NULL))
ROW(BOTH, "av/unknown-type", "fi_av(3)", REFUSED,
    open_av(.type = UNKNOWN_NUMBER))
ROW(BOTH, "av/unknown-flag", "fi_av(3)", REFUSED,
    open_av(.flags = UNKNOWN_FLAG))
ROW(BOTH, "av/other-type-than-domain", "fi_av(3)", REFUSED,
    (spec.av_type = FI_AV_TABLE, open_av(.type = FI_AV_MAP)))
ROW(BOTH, "av/user-ids-not-offered", "fi_av(3)", REFUSED,
    open_av(.flags = FI_AV_USER_ID))
ROW(BOTH, "av/receive-context-bits-beyond", CARRIED_OUT, 0,
    open_av(.rx_ctx_bits = 65))
ROW(BOTH, "av/receive-context-bits-negative", CARRIED_OUT, 0,
    open_av(.rx_ctx_bits = -1))
ROW(BOTH, "av/read-only-without-name", CARRIED_OUT, 0,
    open_av(.flags = FI_READ))
ROW(RDM, "av/count-beyond", "fi_av(3)", 1,
    fi_av_insert(AV(.count = 1), somewhere(), 1, addr, 0, NULL))
ROW(RDM, "av/insert", "fi_av(3)", 1,
    fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL))
ROW(RDM, "av/insert-none", "fi_av(3)", 0,
    fi_av_insert(AV(), somewhere(), 0, addr, 0, NULL))
ROW(RDM, "av/insert-without-place", "fi_av(3)", 1,
    fi_av_insert(AV(), somewhere(), 1, NULL, 0, NULL))
ROW(RDM, "av/insert-nothing", "fi_av(3)", REFUSED,
    fi_av_insert(AV(), NULL, 1, addr, 0, NULL))
ROW(RDM, "av/insert-unknown-flag", CARRIED_OUT, 1,
    fi_av_insert(AV(), somewhere(), 1, addr, UNKNOWN_FLAG, NULL))
ROW(RDM, "av/insert-errors-nowhere", CARRIED_OUT, 1,
    fi_av_insert(AV(), somewhere(), 1, addr, FI_SYNC_ERR, NULL))
ROW(RDM, "av/insert-unknown-family", "fi_av(3)", 0, ({
	struct sockaddr_in strange = { .sin_family = 200 };
	int errors[1] = { 0 };
	int inserted = fi_av_insert(AV(), &strange, 1, addr, FI_SYNC_ERR,
				    errors);

	REQUIRE(inserted < 0 || errors[0] > 0);
	REQUIRE(addr[0] == FI_ADDR_NOTAVAIL);
	at_least_none(inserted);
    }))
ROW(RDM, "av/insert-user-id-not-offered", CARRIED_OUT, 1,
    fi_av_insert(AV(), somewhere(), 1, addr, FI_AV_USER_ID, NULL))
ROW(RDM, "av/insert-no-queue", CARRIED_OUT, 1,
    fi_av_insert(AV(.flags = FI_EVENT), somewhere(), 1, addr, 0, NULL))
ROW(RDM, "av/insertsvc", "fi_av(3)", 1,
    (internet(), fi_av_insertsvc(AV(), "127.0.0.1", "7471", addr, 0, NULL)))
ROW(RDM, "av/insertsvc-nowhere", "fi_av(3)", REFUSED,
    fi_av_insertsvc(AV(), NULL, NULL, addr, 0, NULL))
ROW(RDM, "av/insertsvc-unknown-host", "fi_av(3)", 0,
    at_least_none(fi_av_insertsvc(AV(), "no.such.host.invalid", "1", addr, 0,
				  NULL)))
ROW(RDM, "av/insertsym", "fi_av(3)", 4,
    (internet(),
     fi_av_insertsym(AV(), "127.0.0.1", 2, "7471", 2, addr, 0, NULL)))
ROW(RDM, "av/remove", "fi_av(3)", 0,
    (fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL),
     fi_av_remove(opened_av, addr, 1, 0)))
ROW(RDM, "av/remove-twice", "fi_av(3)", REFUSED,
    (fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL),
     FIRST(fi_av_remove(opened_av, addr, 1, 0)),
     fi_av_remove(opened_av, addr, 1, 0)))
ROW(RDM, "av/remove-unknown", "fi_av(3)", REFUSED,
    (addr[0] = 12345, fi_av_remove(AV(), addr, 1, 0)))
ROW(RDM, "av/remove-nothing", "fi_av(3)", REFUSED,
    fi_av_remove(AV(), NULL, 1, 0))
ROW(RDM, "av/remove-unknown-flag", "fi_tcp(7)", REFUSED,
    (fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL),
     fi_av_remove(opened_av, addr, 1, UNKNOWN_FLAG)))

/* fi_av_lookup of the only address with space for so many bytes. */
static int look_up(fi_addr_t number, size_t room, size_t *needed)
{
	*needed = room;
	EXPECT(fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL), 1);
	return fi_av_lookup(opened_av, number, memory, needed);
}

static size_t needed;

ROW(RDM, "av/lookup", "fi_av(3)", 0, look_up(0, 64, &needed))
ROW(RDM, "av/lookup-size", "fi_av(3)", (long)somewhere_size(),
    (look_up(0, 4, &needed), needed))
ROW(RDM, "av/lookup-truncated", "fi_av(3)", 0, look_up(0, 4, &needed))
ROW(RDM, "av/lookup-unset", "fi_av(3)", -FI_EINVAL, look_up(3, 64, &needed))
ROW(RDM, "av/lookup-out-of-bounds", "fi_av(3)", -FI_EINVAL,
    look_up(1ULL << 40, 64, &needed))
ROW(RDM, "av/lookup-unspecified", "fi_av(3)", -FI_EINVAL,
    look_up(FI_ADDR_UNSPEC, 64, &needed))
ROW(RDM, "av/lookup-no-length", "fi_av(3)", REFUSED,
    (look_up(0, 64, &needed), fi_av_lookup(opened_av, 0, memory, NULL)))
ROW(BOTH, "av/bind-eq-synchronous", "fi_av(3)", REFUSED,
    fi_av_bind(AV(), &eq()->fid, 0))
ROW(BOTH, "av/bind-unknown-flag", "fi_av(3)", REFUSED,
    fi_av_bind(AV(.flags = FI_EVENT), &eq()->fid, UNKNOWN_FLAG))
ROW(BOTH, "av/bind-cq", "fi_av(3)", REFUSED,
    fi_av_bind(AV(.flags = FI_EVENT), &cq()->fid, 0))
ROW(BOTH, "av/bind-endpoint", "fi_av(3)", REFUSED,
    fi_av_bind(AV(.flags = FI_EVENT), &new_ep()->fid, 0))
ROW(BOTH, "av/bind-nothing", "fi_av(3)", REFUSED,
    fi_av_bind(AV(.flags = FI_EVENT), NULL, 0))
ROW(BOTH, "av/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&AV()->fid, UNKNOWN_NUMBER, memory))
ROW(RDM, "av/set-user-id-not-offered", "fi_av(3)", REFUSED,
    (fi_av_insert(AV(), somewhere(), 1, addr, 0, NULL),
     fi_av_set_user_id(opened_av, addr[0], 7, 0)))

/* The source of a message from a peer that has an identifier of the user's. */
static fi_addr_t reported_as(uint64_t av_flags, uint64_t insert_flags)
{
	unsigned char name[CT_NAME];
	struct ct_peer from;
	fi_addr_t given = 77;
	char out = 'x';

	spec = (struct ct_spec) { .caps = FI_MSG | FI_SOURCE | FI_AV_USER_ID };
	OK(fi_close(&peer()->av->fid));
	OK(open_av(.flags = av_flags));
	peer()->av = opened_av;
	ep();
	spec.caps = FI_MSG;
	ct_open_single(&from, &spec);
	ct_name(&from.ep->fid, name, sizeof(name));
	EXPECT(fi_av_insert(opened_av, name, 1, &given, insert_flags, NULL), 1);
	if (av_flags)
		OK(fi_av_set_user_id(opened_av, given, 77, 0));
	ct_name(&ep()->fid, name, sizeof(name));
	from.to = ct_insert(&from, name);
	from.partner = peer();
	OK(fi_recv(ep(), memory, 1, NULL, FI_ADDR_UNSPEC, context));
	POST(&from, fi_inject(from.ep, &out, 1, from.to));
	return ct_done(&from, &peer()->rx, context).src;
}

ROW(RDM, "av/user-id-of-vector", "fi_av(3)", 77, reported_as(FI_AV_USER_ID, 0))
ROW(RDM, "av/user-id-of-insertion", "fi_av(3)", 77,
    reported_as(0, FI_AV_USER_ID))
ROW(RDM, "av/insert-auth-key-not-offered", "fi_av(3)", REFUSED,
    fi_av_insert_auth_key(AV(), memory, 16, addr, 0))
ROW(RDM, "av/busy", "fi_av(3)", -FI_EBUSY, (ep(), fi_close(&av()->fid)))
ROW(RDM, "av/busy-before-enable", "fi_av(3)", -FI_EBUSY,
    (bound_ep(), fi_close(&av()->fid)))

/* fi_mr(3) */
static struct fid_mr *region;

static int reg(const void *buf, size_t len, uint64_t access, uint64_t offset,
	       uint64_t key, uint64_t flags)
{
	return fi_mr_reg(domain(), buf, len, access, offset, key, flags,
			 &region, NULL);
}

static int reg_attr(uint64_t flags, struct fi_mr_attr attr)
{
	return fi_mr_regattr(domain(), &attr, flags, &region);
}

static const struct iovec whole = { memory, sizeof(memory) };

ROW(BOTH, "mr/reg", "fi_mr(3)", 0, reg(memory, 64, FI_REMOTE_WRITE, 0, 1, 0))
ROW(BOTH, "mr/no-place", "fi_mr(3)", -FI_EINVAL,
    fi_mr_reg(domain(), memory, 64, FI_REMOTE_READ, 0, 1, 0, NULL, NULL))
ROW(BOTH, "mr/unknown-access", "fi_mr(3)", 0,
    reg(memory, 64, UNKNOWN_FLAG, 0, 1, 0))
ROW(BOTH, "mr/unknown-flag", CARRIED_OUT, 0,
    reg(memory, 64, FI_REMOTE_READ, 0, 1, UNKNOWN_FLAG))
ROW(BOTH, "mr/offset", CARRIED_OUT, 0,
    reg(memory, 64, FI_REMOTE_READ, 8, 1, 0))
ROW(BOTH, "mr/key-in-use", "fi_mr(3)", -FI_ENOKEY,
    (FIRST(reg(memory, 64, FI_REMOTE_READ, 0, 1, 0)),
     reg(memory, 64, FI_REMOTE_READ, 0, 1, 0)))
ROW(BOTH, "mr/no-vector", "fi_mr(3)", REFUSED,
    fi_mr_regv(domain(), NULL, 1, FI_REMOTE_READ, 0, 1, 0, &region, NULL))
ROW(BOTH, "mr/vector-beyond", "fi_mr(3)", REFUSED,
    fi_mr_regv(domain(), &whole, info()->domain_attr->mr_iov_limit + 1,
	       FI_REMOTE_READ, 0, 1, 0, &region, NULL))
ROW(BOTH, "mr/no-attributes", "fi_mr(3)", REFUSED,
    fi_mr_regattr(domain(), NULL, 0, &region))
ROW(BOTH, "mr/attr", "fi_mr(3)", 0, reg_attr(0, (struct fi_mr_attr) {
	.mr_iov = &whole, .iov_count = 1, .access = FI_REMOTE_READ,
    }))
ROW(BOTH, "mr/attr-unknown-interface", "fi_mr(3)", REFUSED,
    reg_attr(0, (struct fi_mr_attr) {
	.mr_iov = &whole, .iov_count = 1, .access = FI_REMOTE_READ,
	.iface = UNKNOWN_NUMBER,
    }))
ROW(BOTH, "mr/attr-unknown-flag", CARRIED_OUT, 0,
    reg_attr(UNKNOWN_FLAG, (struct fi_mr_attr) {
	.mr_iov = &whole, .iov_count = 1, .access = FI_REMOTE_READ,
    }))
ROW(BOTH, "mr/bind-av", "fi_mr(3)", REFUSED, fi_mr_bind(mr(), &av()->fid, 0))
ROW(BOTH, "mr/bind-nothing", "fi_mr(3)", REFUSED, fi_mr_bind(mr(), NULL, 0))
ROW(BOTH, "mr/bind-cq", "fi_mr(3)", REFUSED, fi_mr_bind(mr(), &cq()->fid, 0))
ROW(BOTH, "mr/bind-counter-no-operation", "fi_mr(3)", REFUSED,
    fi_mr_bind(mr(), &cntr()->fid, 0))
ROW(BOTH, "mr/bind-counter-unknown-flag", "fi_mr(3)", REFUSED,
    fi_mr_bind(mr(), &cntr()->fid, FI_REMOTE_WRITE | UNKNOWN_FLAG))
ROW(BOTH, "mr/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&mr()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "mr/close-twice-registered", "fi_mr(3)", 0,
    (FIRST(reg(memory, 64, FI_REMOTE_READ, 0, 1, 0)),
     FIRST(fi_close(&region->fid)), reg(memory, 64, FI_REMOTE_READ, 0, 1, 0)))
