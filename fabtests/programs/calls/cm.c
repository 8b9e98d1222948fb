/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Names and connections, fi_cm(3). */
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "connect.h"
#include "row.h"

#define PAGE "fi_cm(3)"

/* The address of the listener, for peers that connect to it. */
static void *target(void)
{
	static unsigned char name[CT_NAME];

	ct_name(&listener()->fid, name, sizeof(name));
	return name;
}

/* fi_setname */
static int rename_to(void *addr, size_t len)
{
	return fi_setname(&bound_ep()->fid, addr, len);
}

/* After a name that it does not get, an endpoint takes the next and works. */
static int next_after(void *addr, size_t len)
{
	internet();
	if (!rename_to(addr, len))
		return -FI_EOTHER;
	OK(rename_to(free_address(), sizeof(*free_address())));
	OK(fi_enable(bound_ep()));
	if (ct_opt.type == FI_EP_MSG)
		OK(fi_connect(bound_ep(), target(), NULL, 0));
	return 0;
}

/* The same, with the address that it had. */
static int stays_after(void *addr, size_t len)
{
	if (!rename_to(addr, len))
		return -FI_EOTHER;
	OK(fi_enable(bound_ep()));
	if (ct_opt.type == FI_EP_MSG)
		OK(fi_connect(bound_ep(), target(), NULL, 0));
	return 0;
}

ROW(BOTH, "setname/free", PAGE, 0,
    (internet(), rename_to(free_address(), sizeof(*free_address()))))
ROW(BOTH, "setname/foreign", PAGE, -FI_EADDRNOTAVAIL,
    (internet(), rename_to(foreign(), sizeof(*foreign()))))
ROW(BOTH, "setname/taken", PAGE, -FI_EADDRINUSE,
    (internet(), rename_to(taken(), sizeof(*taken()))))
ROW(BOTH, "setname/other-family", PAGE, REFUSED,
    rename_to(other_family(), sizeof(*other_family())))
ROW(BOTH, "setname/nothing", PAGE, -FI_EINVAL, rename_to(NULL, 16))
ROW(BOTH, "setname/too-short", PAGE, -FI_EINVAL, rename_to(free_address(), 3))
ROW(BOTH, "setname/next-after-foreign", PAGE, 0,
    next_after(foreign(), sizeof(*foreign())))
ROW(BOTH, "setname/next-after-taken", PAGE, 0,
    next_after(taken(), sizeof(*taken())))
ROW(BOTH, "setname/next-after-other-family", PAGE, 0,
    next_after(other_family(), sizeof(*other_family())))
ROW(BOTH, "setname/stays-after-foreign", PAGE, 0,
    stays_after(foreign(), sizeof(*foreign())))
ROW(BOTH, "setname/stays-after-taken", PAGE, 0,
    stays_after(taken(), sizeof(*taken())))
ROW(RDM, "setname/enabled", PAGE, REFUSED,
    fi_setname(&ep()->fid, free_address(), sizeof(*free_address())))
ROW(MSG, "setname/connected", PAGE, REFUSED,
    fi_setname(&pair()->b.ep->fid, free_address(), sizeof(*free_address())))
ROW(MSG, "setname/accepted", PAGE, REFUSED,
    fi_setname(&pair()->a.ep->fid, free_address(), sizeof(*free_address())))

/* fi_getname, fi_getpeer */
static int name_in(int (*get)(fid_t, void *, size_t *), void *room, size_t len)
{
	return get(&ep()->fid, room, &len);
}

static int get_peer(fid_t fid, void *room, size_t *len)
{
	return fi_getpeer((struct fid_ep *)fid, room, len);
}

ROW(RDM, "getname/size", PAGE, -FI_ETOOSMALL, name_in(fi_getname, NULL, 0))
ROW(RDM, "getname/truncated", PAGE, -FI_ETOOSMALL,
    name_in(fi_getname, memory, 4))
ROW(RDM, "getname/whole", PAGE, 0, name_in(fi_getname, memory, 128))
ROW(BOTH, "getname/no-length", PAGE, -FI_EINVAL,
    fi_getname(&ep()->fid, memory, NULL))
ROW(RDM, "getpeer/datagrams", PAGE, REFUSED, name_in(get_peer, memory, 128))
ROW(MSG, "getpeer/connected", PAGE, 0, ({
	size_t len = sizeof(memory);

	fi_getpeer(pair()->a.ep, memory, &len);
    }))
ROW(MSG, "getpeer/not-connected", PAGE, REFUSED,
    name_in(get_peer, memory, 128))
ROW(MSG, "getpeer/no-length", PAGE, -FI_EINVAL,
    fi_getpeer(pair()->a.ep, memory, NULL))

/* Endpoints that have no connections */
ROW(RDM, "connect/datagrams", PAGE, REFUSED,
    fi_connect(ep(), free_address(), NULL, 0))
ROW(RDM, "accept/datagrams", PAGE, REFUSED, fi_accept(ep(), NULL, 0))
ROW(RDM, "shutdown/datagrams", PAGE, REFUSED, fi_shutdown(ep(), 0))

/* fi_connect */
ROW(MSG, "connect/bound", PAGE, 0, fi_connect(bound_ep(), target(), NULL, 0))
ROW(MSG, "connect/nowhere", PAGE, REFUSED, fi_connect(ep(), NULL, NULL, 0))
ROW(MSG, "connect/unknown-family", PAGE, REFUSED, ({
	struct sockaddr_in addr = { .sin_family = 200 };

	fi_connect(ep(), &addr, NULL, 0);
    }))
ROW(MSG, "connect/twice", PAGE, REFUSED,
    (FIRST(fi_connect(ep(), target(), NULL, 0)),
     fi_connect(ep(), target(), NULL, 0)))
ROW(MSG, "connect/connected", PAGE, REFUSED,
    fi_connect(pair()->b.ep, target(), NULL, 0))
ROW(MSG, "connect/no-eq", PAGE, -FI_ENOEQ,
    (FIRST(fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | FI_RECV)),
     fi_connect(new_ep(), target(), NULL, 0)))
ROW(MSG, "connect/no-cq", CARRIED_OUT, 0,
    (FIRST(fi_ep_bind(new_ep(), &eq()->fid, 0)),
     fi_connect(new_ep(), target(), NULL, 0)))
/* Programs bind their counters late, and count from then on. */
ROW(MSG, "connect/bind-afterwards", CARRIED_OUT, 0,
    (FIRST(fi_connect(bound_ep(), target(), NULL, 0)),
     fi_ep_bind(bound_ep(), &cntr()->fid, FI_SEND)))

/* Options that are set on the socket before it connects are those of the
 * connection. */
ROW(MSG, "connect/socket-stays", "fi_tcp(7)", 0, ({
	int before = -1, after = -2;

	OK(fi_control(&bound_ep()->fid, FI_GET_FD, &before));
	OK(fi_connect(bound_ep(), target(), NULL, 0));
	OK(fi_control(&bound_ep()->fid, FI_GET_FD, &after));
	before == after ? 0 : 1;
    }))

/* fi_accept */
static struct fi_info *request(const void *data, size_t len)
{
	struct ct_event event;

	OK(fi_connect(ep(), target(), data, len));
	ct_wait_request(peer(), &event);
	memcpy(memory, event.data, event.data_len);
	memset(memory + event.data_len, 0, 16);
	return event.info;
}

/* Accepts a request with an endpoint of its own. */
static struct fid_ep *acceptor(struct fi_info *from)
{
	struct fid_ep *ep;

	OK(fi_endpoint(domain(), from, &ep, NULL));
	OK(fi_ep_bind(ep, &eq()->fid, 0));
	OK(fi_ep_bind(ep, &cq()->fid, FI_TRANSMIT | FI_RECV));
	return ep;
}

ROW(MSG, "accept/no-request", PAGE, REFUSED, fi_accept(ep(), NULL, 0))
ROW(MSG, "accept/request", PAGE, 0,
    fi_accept(acceptor(request(NULL, 0)), NULL, 0))
ROW(MSG, "accept/twice", PAGE, REFUSED, ({
	struct fid_ep *ep = acceptor(request(NULL, 0));

	OK(fi_accept(ep, NULL, 0));
	fi_accept(ep, NULL, 0);
    }))
ROW(MSG, "accept/connecting", PAGE, REFUSED,
    (FIRST(fi_connect(ep(), target(), NULL, 0)), fi_accept(ep(), NULL, 0)))
ROW(MSG, "accept/endpoint-of-one-request-twice", "fi_endpoint(3)", REFUSED, ({
	struct fi_info *from = request(NULL, 0);
	struct fid_ep *ep;

	acceptor(from);
	fi_endpoint(domain(), from, &ep, NULL);
    }))

/* fi_reject */
ROW(MSG, "reject/nothing", PAGE, -FI_EINVAL,
    fi_reject(listener(), NULL, NULL, 0))
ROW(MSG, "reject/no-request", PAGE, REFUSED,
    fi_reject(listener(), &ep()->fid, NULL, 0))
ROW(MSG, "reject/request", PAGE, 0,
    fi_reject(listener(), request(NULL, 0)->handle, NULL, 0))

/* Connection data beyond the limit is cut silently. */
static size_t data_limit(void)
{
	size_t limit = 0, len = sizeof(limit);

	OK(fi_getopt(&ep()->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit,
		     &len));
	return limit;
}

/* More data than that, none of it zero. */
static const char *long_data(void)
{
	static char data[CT_CM_DATA];

	REQUIRE(data_limit() < sizeof(data));
	memset(data, 'x', sizeof(data));
	return data;
}

ROW(MSG, "data/connect-too-much", PAGE, 0,
    fi_connect(ep(), target(), long_data(), data_limit() + 1))
ROW(MSG, "data/connect-cut", PAGE, 0,
    (request(long_data(), CT_CM_DATA - 16),
     !memchr(memory, 0, data_limit()) && !memory[data_limit()] ? 0 : 1))
ROW(MSG, "data/accept-too-much", PAGE, 0,
    fi_accept(acceptor(request(NULL, 0)), long_data(), data_limit() + 1))
ROW(MSG, "data/reject-too-much", PAGE, 0,
    fi_reject(listener(), request(NULL, 0)->handle, long_data(),
	      data_limit() + 1))

/* fi_shutdown */
ROW(MSG, "shutdown/unknown-flag", CARRIED_OUT, 0,
    fi_shutdown(pair()->a.ep, UNKNOWN_FLAG))
ROW(MSG, "shutdown/connected", PAGE, 0, fi_shutdown(pair()->a.ep, 0))

/* Passive endpoints */
static struct fid_pep *unbound_pep(void)
{
	static struct fid_pep *pep;

	if (!pep)
		OK(fi_passive_ep(fabric(), info(), &pep, NULL));
	return pep;
}

static int rename_passive(void *addr, size_t len)
{
	return fi_setname(&new_pep()->fid, addr, len);
}

/* As for active endpoints. */
static int listens_after(void *addr, size_t len)
{
	if (!rename_passive(addr, len))
		return -FI_EOTHER;
	OK(rename_passive(free_address(), sizeof(*free_address())));
	return fi_listen(new_pep());
}

ROW(MSG, "passive/bind-nothing", "fi_endpoint(3)", -FI_EINVAL,
    fi_pep_bind(unbound_pep(), NULL, 0))
ROW(MSG, "passive/bind-cq", "fi_endpoint(3)", -FI_EINVAL,
    fi_pep_bind(unbound_pep(), &cq()->fid, 0))
ROW(MSG, "passive/bind-itself", "fi_endpoint(3)", -FI_EINVAL,
    fi_pep_bind(unbound_pep(), &unbound_pep()->fid, 0))
ROW(MSG, "passive/bind-unknown-flag", "fi_endpoint(3)", -FI_EINVAL,
    fi_pep_bind(unbound_pep(), &eq()->fid, UNKNOWN_FLAG))
ROW(MSG, "passive/bind-direction", "fi_endpoint(3)", -FI_EINVAL,
    fi_pep_bind(unbound_pep(), &eq()->fid, FI_RECV))
ROW(MSG, "passive/bind-twice", CARRIED_OUT, 0,
    fi_pep_bind(new_pep(), &eq()->fid, 0))
ROW(MSG, "passive/busy-eq", "fi_eq(3)", -FI_EBUSY,
    (new_pep(), fi_close(&eq()->fid)))
ROW(MSG, "passive/listen-no-eq", PAGE, -FI_ENOEQ, fi_listen(unbound_pep()))
ROW(MSG, "passive/listen-twice", PAGE, REFUSED, fi_listen(listener()))
ROW(MSG, "passive/setname-foreign", PAGE, -FI_EADDRNOTAVAIL,
    rename_passive(foreign(), sizeof(*foreign())))
ROW(MSG, "passive/setname-taken", PAGE, -FI_EADDRINUSE,
    rename_passive(taken(), sizeof(*taken())))
ROW(MSG, "passive/setname-other-family", PAGE, REFUSED,
    rename_passive(other_family(), sizeof(*other_family())))
ROW(MSG, "passive/setname-nothing", PAGE, -FI_EINVAL, rename_passive(NULL, 16))
ROW(MSG, "passive/setname-too-short", PAGE, -FI_EINVAL,
    rename_passive(free_address(), 3))
ROW(MSG, "passive/setname-listening", PAGE, REFUSED,
    (listener(), rename_passive(free_address(), sizeof(*free_address()))))
ROW(MSG, "passive/next-after-foreign", PAGE, 0,
    listens_after(foreign(), sizeof(*foreign())))
ROW(MSG, "passive/next-after-taken", PAGE, 0,
    listens_after(taken(), sizeof(*taken())))
ROW(MSG, "passive/stays-after-foreign", PAGE, 0,
    (rename_passive(foreign(), sizeof(*foreign())), fi_listen(new_pep())))
ROW(MSG, "passive/backlog", "fi_control(3)", 0, ({
	int backlog = 8;

	fi_control(&new_pep()->fid, FI_BACKLOG, &backlog);
    }))
ROW(MSG, "passive/backlog-negative", "fi_control(3)", REFUSED, ({
	int backlog = -8;

	fi_control(&new_pep()->fid, FI_BACKLOG, &backlog);
    }))
ROW(MSG, "passive/backlog-nothing", "fi_control(3)", REFUSED,
    fi_control(&new_pep()->fid, FI_BACKLOG, NULL))
ROW(MSG, "passive/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&new_pep()->fid, UNKNOWN_NUMBER, memory))
ROW(MSG, "passive/option-unknown", "fi_endpoint(3)", -FI_ENOPROTOOPT, ({
	size_t len = 8;

	fi_getopt(&new_pep()->fid, FI_OPT_ENDPOINT, UNKNOWN_NUMBER, memory,
		  &len);
    }))
ROW(MSG, "passive/option-set", "fi_endpoint(3)", REFUSED,
    fi_setopt(&new_pep()->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, memory,
	      8))
ROW(MSG, "passive/getname-size", PAGE, -FI_ETOOSMALL, ({
	size_t len = 0;

	fi_getname(&new_pep()->fid, NULL, &len);
    }))
ROW(MSG, "passive/used-up", "fi_endpoint(3)", REFUSED, ({
	struct fi_info *taking = fi_dupinfo(info());
	struct fid_ep *ep;

	taking->handle = &new_pep()->fid;
	OK(fi_endpoint(domain(), taking, &ep, NULL));
	fi_listen(new_pep());
    }))
ROW(MSG, "passive/handle-of-another-class", "fi_endpoint(3)", REFUSED, ({
	struct fi_info *taking = fi_dupinfo(info());
	struct fid_ep *ep;

	taking->handle = &cq()->fid;
	fi_endpoint(domain(), taking, &ep, NULL);
    }))
