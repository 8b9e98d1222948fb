/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Sets of addresses, and collective operations. */
#include <rdma/fi_collective.h>

#include "row.h"

#define SETS "fi_av_set(3)"
#define PAGE "fi_collective(3)"

static struct fid_ep *member(void)
{
	spec.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_COLLECTIVE;
	spec.eq = true;
	return ep();
}

static struct fid_av_set *new_set(struct fid_av *of)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL, .stride = 1,
	};
	struct fid_av_set *opened;

	OK(fi_av_set(of, &attr, &opened, NULL));
	return opened;
}

static struct fid_av_set *opened_set;
static struct fid_mc *opened_group;

static struct fid_av_set *set(void)
{
	if (!opened_set)
		opened_set = new_set(av());
	return opened_set;
}

/* How the vector calls an address. */
static fi_addr_t number(void)
{
	static fi_addr_t inserted = FI_ADDR_NOTAVAIL;

	if (inserted == FI_ADDR_NOTAVAIL)
		EXPECT(fi_av_insert(av(), somewhere(), 1, &inserted, 0, NULL), 1);
	return inserted;
}

static fi_addr_t self(void)
{
	static fi_addr_t inserted = FI_ADDR_NOTAVAIL;
	unsigned char name[CT_NAME];

	if (inserted == FI_ADDR_NOTAVAIL) {
		ct_name(&member()->fid, name, sizeof(name));
		inserted = ct_insert(peer(), name);
	}
	return inserted;
}

static int join(struct fid_ep *ep, struct fid_av_set *of)
{
	return fi_join_collective(ep, FI_ADDR_NOTAVAIL, of, 0, &opened_group, NULL);
}

/* A group of the endpoint alone. */
static fi_addr_t group(void)
{
	if (!opened_group) {
		OK(fi_av_set_insert((member(), set()), self()));
		OK(join(member(), set()));
		ct_event_of(peer(), FI_JOIN_COMPLETE);
	}
	return fi_mc_addr(opened_group);
}

static int query(enum fi_collective_op op, enum fi_datatype type, struct fi_collective_attr *attr)
{
	if (attr)
		*attr = (struct fi_collective_attr) { .op = FI_SUM, .datatype = type };
	return fi_query_collective(domain(), op, attr, 0);
}

static struct fi_collective_attr attr;

ROW(RDM, "av-set/open", SETS, 0, (set(), 0))
ROW(RDM, "av-set/open-range", SETS, 0, ({
	struct fi_av_set_attr all = { .start_addr = 0, .end_addr = 100, .stride = 1 };

	fi_av_set(av(), &all, &opened_set, NULL);
    }))
ROW(RDM, "av-set/open-nowhere", SETS, -FI_EINVAL, ({
	struct fi_av_set_attr all = { .start_addr = 0, .end_addr = 100, .stride = 1 };

	fi_av_set(av(), &all, NULL, NULL);
    }))
ROW(RDM, "av-set/open-no-attributes", SETS, -FI_EINVAL,
    fi_av_set(av(), NULL, &opened_set, NULL))
ROW(RDM, "av-set/insert", SETS, 0, fi_av_set_insert(set(), number()))
ROW(RDM, "av-set/insert-twice", SETS, -FI_EINVAL,
    (FIRST(fi_av_set_insert(set(), number())), fi_av_set_insert(set(), number())))
ROW(RDM, "av-set/remove", SETS, 0,
    (FIRST(fi_av_set_insert(set(), number())), fi_av_set_remove(set(), number())))
ROW(RDM, "av-set/remove-no-member", SETS, -FI_EINVAL, fi_av_set_remove(set(), number()))
ROW(RDM, "av-set/union", SETS, 0, fi_av_set_union(set(), new_set(av())))
ROW(RDM, "av-set/intersect", SETS, 0, fi_av_set_intersect(set(), new_set(av())))
ROW(RDM, "av-set/diff", SETS, 0, fi_av_set_diff(set(), new_set(av())))
ROW(RDM, "av-set/union-of-another-vector", SETS, -FI_EINVAL,
    fi_av_set_union(set(), new_set(pair()->a.av)))
ROW(RDM, "av-set/intersect-of-another-vector", SETS, -FI_EINVAL,
    fi_av_set_intersect(set(), new_set(pair()->a.av)))
ROW(RDM, "av-set/diff-of-another-vector", SETS, -FI_EINVAL,
    fi_av_set_diff(set(), new_set(pair()->a.av)))
ROW(RDM, "av-set/union-with-nothing", SETS, -FI_EINVAL, fi_av_set_union(set(), NULL))
ROW(RDM, "av-set/intersect-with-nothing", SETS, -FI_EINVAL, fi_av_set_intersect(set(), NULL))
ROW(RDM, "av-set/diff-with-nothing", SETS, -FI_EINVAL, fi_av_set_diff(set(), NULL))
ROW(RDM, "av-set/address", SETS, 0, ({
	fi_addr_t of;

	fi_av_set_addr(set(), &of);
    }))
ROW(RDM, "av-set/address-nowhere", SETS, -FI_EINVAL, fi_av_set_addr(set(), NULL))
ROW(RDM, "av-set/close", SETS, 0, fi_close(&set()->fid))
ROW(RDM, "av-set/busy-vector", SETS, -FI_EBUSY, (set(), fi_close(&av()->fid)))

ROW(RDM, "collective/query", PAGE, 0, (member(), query(FI_ALLREDUCE, FI_UINT64, &attr)))
ROW(RDM, "collective/query-without-capability", PAGE, -FI_EOPNOTSUPP,
    query(FI_ALLREDUCE, FI_UINT64, &attr))
ROW(RDM, "collective/query-unknown-operation", PAGE, REFUSED,
    (member(), query((enum fi_collective_op)UNKNOWN_NUMBER, FI_UINT64, &attr)))
ROW(RDM, "collective/query-unknown-datatype", PAGE, -FI_EOPNOTSUPP,
    (member(), query(FI_ALLREDUCE, (enum fi_datatype)UNKNOWN_NUMBER, &attr)))
ROW(RDM, "collective/query-nothing", PAGE, REFUSED, (member(), query(FI_ALLREDUCE, 0, NULL)))

ROW(RDM, "collective/join", PAGE, 0, (group(), 0))
ROW(RDM, "collective/join-nothing", PAGE, REFUSED, join(member(), NULL))
ROW(RDM, "collective/join-no-member", PAGE, -FI_EINVAL, join(member(), set()))
ROW(RDM, "collective/join-without-capability", PAGE, REFUSED, join(ep(), set()))
ROW(RDM, "collective/join-no-queue", PAGE, -FI_ENOEQ, ({
	struct fid_ep *alone;
	unsigned char name[CT_NAME];

	member();
	OK(fi_endpoint(domain(), info(), &alone, NULL));
	OK(fi_ep_bind(alone, &av()->fid, 0));
	OK(fi_ep_bind(alone, &cq()->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(alone));
	ct_name(&alone->fid, name, sizeof(name));
	OK(fi_av_set_insert(set(), ct_insert(peer(), name)));
	join(alone, set());
    }))
ROW(RDM, "collective/leave", PAGE, 0, (group(), fi_close(&opened_group->fid)))

ROW(RDM, "collective/barrier", PAGE, 0, fi_barrier(member(), group(), context))
ROW(RDM, "collective/barrier2", PAGE, 0, fi_barrier2(member(), group(), 0, context))
ROW(RDM, "collective/broadcast", PAGE, 0,
    fi_broadcast(member(), memory, 1, NULL, group(), self(), FI_UINT64, 0, context))
ROW(RDM, "collective/all-to-all", PAGE, 0,
    fi_alltoall(member(), memory, 1, NULL, memory + 64, NULL, group(), FI_UINT64, 0, context))
ROW(RDM, "collective/all-reduce", PAGE, 0,
    fi_allreduce(member(), memory, 1, NULL, memory + 64, NULL, group(), FI_UINT64, FI_SUM, 0,
		 context))
ROW(RDM, "collective/all-gather", PAGE, 0,
    fi_allgather(member(), memory, 1, NULL, memory + 64, NULL, group(), FI_UINT64, 0, context))
ROW(RDM, "collective/reduce-scatter", PAGE, 0,
    fi_reduce_scatter(member(), memory, 1, NULL, memory + 64, NULL, group(), FI_UINT64, FI_SUM,
		      0, context))
ROW(RDM, "collective/reduce", PAGE, 0,
    fi_reduce(member(), memory, 1, NULL, memory + 64, NULL, group(), self(), FI_UINT64, FI_SUM,
	      0, context))
ROW(RDM, "collective/scatter", PAGE, 0,
    fi_scatter(member(), memory, 1, NULL, memory + 64, NULL, group(), self(), FI_UINT64, 0,
	       context))
ROW(RDM, "collective/gather", PAGE, 0,
    fi_gather(member(), memory, 1, NULL, memory + 64, NULL, group(), self(), FI_UINT64, 0,
	      context))

ROW(RDM, "collective/barrier-no-group", PAGE, -FI_EINVAL, fi_barrier(member(), 12345, context))
ROW(RDM, "collective/broadcast-no-group", PAGE, -FI_EINVAL,
    fi_broadcast(member(), memory, 1, NULL, 12345, self(), FI_UINT64, 0, context))
ROW(RDM, "collective/all-reduce-no-group", PAGE, -FI_EINVAL,
    fi_allreduce(member(), memory, 1, NULL, memory + 64, NULL, 12345, FI_UINT64, FI_SUM, 0,
		 context))
ROW(RDM, "collective/broadcast-root-no-member", PAGE, -FI_EINVAL,
    (member(), fi_broadcast(member(), memory, 1, NULL, group(), number(), FI_UINT64, 0, context)))
ROW(RDM, "collective/reduce-root-no-member", PAGE, -FI_EINVAL,
    (member(), fi_reduce(member(), memory, 1, NULL, memory + 64, NULL, group(), number(), FI_UINT64, FI_SUM,
	      0, context)))
ROW(RDM, "collective/scatter-root-no-member", PAGE, -FI_EINVAL,
    (member(), fi_scatter(member(), memory, 1, NULL, memory + 64, NULL, group(), number(), FI_UINT64, 0,
	       context)))
ROW(RDM, "collective/gather-root-no-member", PAGE, -FI_EINVAL,
    (member(), fi_gather(member(), memory, 1, NULL, memory + 64, NULL, group(), number(), FI_UINT64, 0,
	      context)))
ROW(RDM, "collective/broadcast-no-memory", PAGE, -FI_EINVAL,
    fi_broadcast(member(), NULL, 1, NULL, group(), self(), FI_UINT64, 0, context))
ROW(RDM, "collective/all-reduce-no-memory", PAGE, -FI_EINVAL,
    fi_allreduce(member(), NULL, 1, NULL, memory + 64, NULL, group(), FI_UINT64, FI_SUM, 0,
		 context))
ROW(RDM, "collective/all-reduce-unknown-datatype", PAGE, -FI_EOPNOTSUPP,
    fi_allreduce(member(), memory, 1, NULL, memory + 64, NULL, group(),
		 (enum fi_datatype)UNKNOWN_NUMBER, FI_SUM, 0, context))
ROW(RDM, "collective/all-reduce-unknown-operation", PAGE, -FI_EOPNOTSUPP,
    fi_allreduce(member(), memory, 1, NULL, memory + 64, NULL, group(), FI_UINT64,
		 (enum fi_op)UNKNOWN_NUMBER, 0, context))
ROW(RDM, "collective/barrier-without-capability", PAGE, -FI_ENOSYS,
    fi_barrier(ep(), 0, context))
ROW(RDM, "collective/barrier2-without-capability", PAGE, -FI_ENOSYS,
    fi_barrier2(ep(), 0, 0, context))
ROW(RDM, "collective/broadcast-without-capability", PAGE, -FI_ENOSYS,
    fi_broadcast(ep(), memory, 1, NULL, 0, 0, FI_UINT64, 0, context))
ROW(RDM, "collective/all-to-all-without-capability", PAGE, -FI_ENOSYS,
    fi_alltoall(ep(), memory, 1, NULL, memory + 64, NULL, 0, FI_UINT64, 0, context))
ROW(RDM, "collective/all-reduce-without-capability", PAGE, -FI_ENOSYS,
    fi_allreduce(ep(), memory, 1, NULL, memory + 64, NULL, 0, FI_UINT64, FI_SUM, 0, context))
ROW(RDM, "collective/all-gather-without-capability", PAGE, -FI_ENOSYS,
    fi_allgather(ep(), memory, 1, NULL, memory + 64, NULL, 0, FI_UINT64, 0, context))
ROW(RDM, "collective/reduce-scatter-without-capability", PAGE, -FI_ENOSYS,
    fi_reduce_scatter(ep(), memory, 1, NULL, memory + 64, NULL, 0, FI_UINT64, FI_SUM, 0,
		      context))
ROW(RDM, "collective/reduce-without-capability", PAGE, -FI_ENOSYS,
    fi_reduce(ep(), memory, 1, NULL, memory + 64, NULL, 0, 0, FI_UINT64, FI_SUM, 0, context))
ROW(RDM, "collective/scatter-without-capability", PAGE, -FI_ENOSYS,
    fi_scatter(ep(), memory, 1, NULL, memory + 64, NULL, 0, 0, FI_UINT64, 0, context))
ROW(RDM, "collective/gather-without-capability", PAGE, -FI_ENOSYS,
    fi_gather(ep(), memory, 1, NULL, memory + 64, NULL, 0, 0, FI_UINT64, 0, context))
