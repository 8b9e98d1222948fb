/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Active endpoints before they are enabled, and their settings. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "row.h"

#define PAGE "fi_endpoint(3)"

/* fi_ep_bind: wrong class, unknown flags, twice, too late */
ROW(BOTH, "bind/nothing", PAGE, -FI_EINVAL, fi_ep_bind(new_ep(), NULL, 0))
ROW(BOTH, "bind/itself", PAGE, -FI_EINVAL,
    fi_ep_bind(new_ep(), &new_ep()->fid, 0))
ROW(BOTH, "bind/fabric", PAGE, -FI_EINVAL,
    fi_ep_bind(new_ep(), &fabric()->fid, 0))
ROW(BOTH, "bind/domain", PAGE, -FI_EINVAL,
    fi_ep_bind(new_ep(), &domain()->fid, 0))
ROW(BOTH, "bind/poll-set", PAGE, -FI_EINVAL,
    fi_ep_bind(new_ep(), &pollset()->fid, 0))
ROW(MSG, "bind/passive", PAGE, -FI_EINVAL,
    fi_ep_bind(new_ep(), &new_pep()->fid, 0))
/* A binding for no direction is accepted, and has no effect. */
ROW(BOTH, "bind/cq-no-direction", CARRIED_OUT, 0,
    fi_ep_bind(new_ep(), &cq()->fid, 0))
ROW(BOTH, "bind/cq-selective-alone", CARRIED_OUT, 0,
    fi_ep_bind(new_ep(), &cq()->fid, FI_SELECTIVE_COMPLETION))
ROW(BOTH, "bind/cq-unknown-flag", PAGE, -FI_EBADFLAGS,
    fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | UNKNOWN_FLAG))
ROW(BOTH, "bind/cq-flag-of-counters", PAGE, -FI_EBADFLAGS,
    fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | FI_REMOTE_READ))
ROW(BOTH, "bind/cq-twice", PAGE, -FI_EINVAL,
    (FIRST(fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT)),
     fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT)))
ROW(BOTH, "bind/second-cq", PAGE, -FI_EINVAL,
    (FIRST(fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | FI_RECV)),
     fi_ep_bind(new_ep(), &peer()->rx.fid->fid, FI_RECV)))
ROW(BOTH, "bind/counter-no-operation", CARRIED_OUT, 0,
    fi_ep_bind(new_ep(), &cntr()->fid, 0))
ROW(BOTH, "bind/counter-unknown-flag", PAGE, -FI_EBADFLAGS,
    fi_ep_bind(new_ep(), &cntr()->fid, FI_SEND | UNKNOWN_FLAG))
ROW(BOTH, "bind/second-counter", PAGE, -FI_EINVAL, ({
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *second;

	OK(fi_cntr_open(domain(), &attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &cntr()->fid, FI_SEND | FI_RECV));
	fi_ep_bind(new_ep(), &second->fid, FI_RECV);
    }))
ROW(BOTH, "bind/counters-of-two-kinds", PAGE, 0, ({
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *second;

	OK(fi_cntr_open(domain(), &attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &cntr()->fid, FI_SEND));
	fi_ep_bind(new_ep(), &second->fid, FI_RECV);
    }))
ROW(RDM, "bind/av-unknown-flag", "fi_tcp(7)", -FI_EBADFLAGS,
    fi_ep_bind(new_ep(), &av()->fid, UNKNOWN_FLAG))
ROW(RDM, "bind/second-av", PAGE, -FI_EINVAL, ({
	struct fi_av_attr attr = { 0 };
	struct fid_av *second;

	OK(fi_av_open(domain(), &attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &av()->fid, 0));
	fi_ep_bind(new_ep(), &second->fid, 0);
    }))
ROW(BOTH, "bind/eq-unknown-flag", "fi_tcp(7)", -FI_EBADFLAGS,
    fi_ep_bind(new_ep(), &eq()->fid, UNKNOWN_FLAG))
/* Another event queue takes the place of the first. */
ROW(MSG, "bind/second-eq", CARRIED_OUT, 0, ({
	struct fi_eq_attr attr = { 0 };
	struct fid_eq *second;

	OK(fi_eq_open(fabric(), &attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &eq()->fid, 0));
	fi_ep_bind(new_ep(), &second->fid, 0);
    }))
ROW(BOTH, "bind/srx-unknown-flag", CARRIED_OUT, 0,
    (spec.srx = true, fi_ep_bind(new_ep(), &srx()->fid, UNKNOWN_FLAG)))
ROW(BOTH, "bind/srx-twice", CARRIED_OUT, 0,
    (spec.srx = true, FIRST(fi_ep_bind(new_ep(), &srx()->fid, 0)),
     fi_ep_bind(new_ep(), &srx()->fid, 0)))
ROW(BOTH, "bind/second-srx", CARRIED_OUT, 0, ({
	struct fid_ep *second;

	spec.srx = true;
	OK(fi_srx_context(domain(), info()->rx_attr, &second, NULL));
	OK(fi_ep_bind(new_ep(), &srx()->fid, 0));
	fi_ep_bind(new_ep(), &second->fid, 0);
    }))
ROW(BOTH, "bind/enabled-counter", CARRIED_OUT, 0,
    fi_ep_bind(ep(), &cntr()->fid, FI_SEND))
ROW(BOTH, "bind/enabled-srx", CARRIED_OUT, 0, fi_ep_bind(ep(), &srx()->fid, 0))
ROW(MSG, "bind/enabled-srx-second", PAGE, -FI_EOPBADSTATE, ({
	struct fid_ep *second;

	spec.srx = true;
	OK(fi_srx_context(domain(), info()->rx_attr, &second, NULL));
	fi_ep_bind(ep(), &second->fid, 0);
    }))
ROW(BOTH, "bind/enabled-cq", PAGE, REFUSED,
    fi_ep_bind(ep(), &cq()->fid, FI_TRANSMIT))

/* fi_enable: missing bindings */
#define NO_QUEUE (ct_needs_queues() ? -FI_ENOCQ : 0)

static int enable_bound_to(uint64_t directions)
{
	OK(fi_ep_bind(new_ep(), ct_opt.type == FI_EP_MSG ? &eq()->fid :
		      &av()->fid, 0));
	if (directions)
		OK(fi_ep_bind(new_ep(), &cq()->fid, directions));
	return fi_enable(new_ep());
}

ROW(RDM, "enable/no-av", PAGE, -FI_ENOAV,
    (FIRST(fi_ep_bind(new_ep(), &cq()->fid, FI_TRANSMIT | FI_RECV)),
     fi_enable(new_ep())))
ROW(BOTH, "enable/no-cq", PAGE, NO_QUEUE, enable_bound_to(0))
ROW(BOTH, "enable/no-cq-for-receives", PAGE, NO_QUEUE,
    enable_bound_to(FI_TRANSMIT))
ROW(BOTH, "enable/no-cq-for-transmits", PAGE, NO_QUEUE,
    enable_bound_to(FI_RECV))
/* A counter is sufficient. */
ROW(BOTH, "enable/counter-in-place-of-cq", CARRIED_OUT, 0,
    (FIRST(fi_ep_bind(new_ep(), &cntr()->fid, FI_RECV)),
     enable_bound_to(FI_TRANSMIT)))
ROW(BOTH, "enable/transmits-only", PAGE, 0,
    (spec.caps = FI_MSG | FI_SEND, enable_bound_to(FI_TRANSMIT)))
ROW(BOTH, "enable/receives-only", PAGE, 0,
    (spec.caps = FI_MSG | FI_RECV, enable_bound_to(FI_RECV)))
/* It may be bound until the endpoint is connected. */
ROW(MSG, "enable/announced-srx-missing", CARRIED_OUT, 0,
    (spec.srx = true, enable_bound_to(FI_TRANSMIT | FI_RECV)))
ROW(RDM, "enable/announced-srx-missing", PAGE, REFUSED,
    (spec.srx = true, enable_bound_to(FI_TRANSMIT | FI_RECV)))
ROW(BOTH, "enable/bound", PAGE, 0, fi_enable(bound_ep()))

/* Operations of an endpoint that is not enabled */
ROW(BOTH, "disabled/send", PAGE, -FI_EOPBADSTATE,
    fi_send(bound_ep(), memory, 8, NULL, 0, context))
ROW(BOTH, "disabled/recv", CARRIED_OUT, 0,
    fi_recv(bound_ep(), memory, 8, NULL, 0, context))
ROW(BOTH, "disabled/tagged-send", PAGE, -FI_EOPBADSTATE,
    (spec.caps |= FI_TAGGED,
     fi_tsend(bound_ep(), memory, 8, NULL, 0, 1, context)))
ROW(BOTH, "disabled/tagged-recv", CARRIED_OUT, 0,
    (spec.caps |= FI_TAGGED,
     fi_trecv(bound_ep(), memory, 8, NULL, 0, 1, 0, context)))
ROW(BOTH, "disabled/read", PAGE, -FI_EOPBADSTATE,
    fi_read(bound_ep(), memory, 8, NULL, 0, 0, 1, context))
ROW(BOTH, "disabled/write", PAGE, -FI_EOPBADSTATE,
    fi_write(bound_ep(), memory, 8, NULL, 0, 0, 1, context))
ROW(BOTH, "disabled/inject", PAGE, -FI_EOPBADSTATE,
    fi_inject(bound_ep(), memory, 8, 0))

/* fi_ep_alias */
static struct fid_ep *alias;

ROW(BOTH, "alias/no-direction", PAGE, REFUSED, fi_ep_alias(ep(), &alias, 0))
ROW(BOTH, "alias/both-directions", PAGE, REFUSED,
    fi_ep_alias(ep(), &alias, FI_TRANSMIT | FI_RECV))
ROW(BOTH, "alias/unknown-flag", PAGE, REFUSED,
    fi_ep_alias(ep(), &alias, FI_TRANSMIT | UNKNOWN_FLAG))
ROW(BOTH, "alias/flag-of-no-meaning", PAGE, REFUSED,
    fi_ep_alias(ep(), &alias, FI_TRANSMIT | FI_MULTI_RECV))
ROW(BOTH, "alias/transmit", PAGE, 0,
    fi_ep_alias(ep(), &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE))
ROW(BOTH, "alias/busy-parent", PAGE, -FI_EBUSY,
    (FIRST(fi_ep_alias(ep(), &alias, FI_RECV)), fi_close(&ep()->fid)))

/* fi_control */
static int control(int command, uint64_t value)
{
	return fi_control(&ep()->fid, command, &value);
}

ROW(BOTH, "control/unknown-command", "fi_control(3)", -FI_ENOSYS,
    control(UNKNOWN_NUMBER, 0))
ROW(BOTH, "control/command-of-passive", "fi_control(3)", -FI_ENOSYS,
    control(FI_BACKLOG, 1))
ROW(BOTH, "control/no-argument", "fi_control(3)", REFUSED,
    fi_control(&ep()->fid, FI_SETOPSFLAG, NULL))
ROW(BOTH, "control/get-flags", PAGE, 0, control(FI_GETOPSFLAG, FI_TRANSMIT))
ROW(BOTH, "control/get-flags-no-direction", PAGE, REFUSED,
    control(FI_GETOPSFLAG, 0))
ROW(BOTH, "control/get-flags-both", PAGE, REFUSED,
    control(FI_GETOPSFLAG, FI_TRANSMIT | FI_RECV))
ROW(BOTH, "control/set-flags", PAGE, 0,
    control(FI_SETOPSFLAG, FI_TRANSMIT | FI_DELIVERY_COMPLETE))
ROW(BOTH, "control/set-flags-no-direction", PAGE, REFUSED,
    control(FI_SETOPSFLAG, FI_DELIVERY_COMPLETE))
ROW(BOTH, "control/set-flags-both", PAGE, REFUSED,
    control(FI_SETOPSFLAG, FI_TRANSMIT | FI_RECV))
ROW(BOTH, "control/set-flags-unknown", PAGE, REFUSED,
    control(FI_SETOPSFLAG, FI_TRANSMIT | UNKNOWN_FLAG))
ROW(BOTH, "control/set-flags-of-receives", PAGE, REFUSED,
    control(FI_SETOPSFLAG, FI_TRANSMIT | FI_MULTI_RECV))
ROW(BOTH, "control/set-flags-of-transmits", PAGE, REFUSED,
    control(FI_SETOPSFLAG, FI_RECV | FI_DELIVERY_COMPLETE))
ROW(BOTH, "control/get-fd-no-argument", "fi_tcp(7)", REFUSED,
    fi_control(&ep()->fid, FI_GET_FD, NULL))
ROW(BOTH, "control/get-fd", "fi_tcp(7)", 0, ({
	socklen_t len = sizeof(int);
	int fd = -1, type = 0;

	OK(fi_control(&pair()->a.ep->fid, FI_GET_FD, &fd));
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
		type != SOCK_STREAM;
    }))

/* fi_getopt and fi_setopt, of an option that every endpoint of the type has */
static int known_option(void)
{
	return ct_opt.type == FI_EP_MSG ? FI_OPT_CM_DATA_SIZE :
					  FI_OPT_MIN_MULTI_RECV;
}

static int getopt_of(int level, int name, size_t room)
{
	size_t value[4];

	return fi_getopt(&ep()->fid, level, name, value, &room);
}

static int setopt_of(int level, int name, size_t len)
{
	size_t value[4] = { 64 };

	return fi_setopt(&bound_ep()->fid, level, name, value, len);
}

ROW(BOTH, "option/get-unknown", PAGE, -FI_ENOPROTOOPT,
    getopt_of(FI_OPT_ENDPOINT, UNKNOWN_NUMBER, 8))
ROW(BOTH, "option/get-unknown-level", PAGE, -FI_ENOPROTOOPT,
    getopt_of(UNKNOWN_NUMBER, known_option(), 8))
ROW(BOTH, "option/get-too-small", PAGE, -FI_ETOOSMALL,
    getopt_of(FI_OPT_ENDPOINT, known_option(), 4))
ROW(BOTH, "option/get", PAGE, 0,
    getopt_of(FI_OPT_ENDPOINT, known_option(), 8))
ROW(BOTH, "option/get-no-place", PAGE, REFUSED, ({
	size_t len = 8;

	fi_getopt(&ep()->fid, FI_OPT_ENDPOINT, known_option(), NULL, &len);
    }))
ROW(BOTH, "option/get-no-length", PAGE, REFUSED,
    fi_getopt(&ep()->fid, FI_OPT_ENDPOINT, known_option(), memory, NULL))
ROW(RDM, "option/set", PAGE, 0,
    setopt_of(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 8))
ROW(BOTH, "option/set-unknown", PAGE, -FI_ENOPROTOOPT,
    setopt_of(FI_OPT_ENDPOINT, UNKNOWN_NUMBER, 8))
ROW(BOTH, "option/set-unknown-level", PAGE, -FI_ENOPROTOOPT,
    setopt_of(UNKNOWN_NUMBER, FI_OPT_MIN_MULTI_RECV, 8))
ROW(RDM, "option/set-wrong-length", PAGE, REFUSED,
    setopt_of(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 4))
ROW(RDM, "option/set-nothing", PAGE, REFUSED,
    fi_setopt(&bound_ep()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL,
	      8))
ROW(MSG, "option/set-read-only", PAGE, -FI_ENOPROTOOPT,
    setopt_of(FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, 8))

/* Shared receive contexts */
ROW(BOTH, "srx/send", PAGE, -FI_ENOSYS,
    fi_send(srx(), memory, 8, NULL, 0, context))
ROW(BOTH, "srx/bind-av", PAGE, REFUSED, bind_to(&srx()->fid, &av()->fid, 0))
ROW(BOTH, "srx/bind-nothing", PAGE, -FI_EINVAL, bind_to(&srx()->fid, NULL, 0))
ROW(BOTH, "srx/bind-unknown-flag", PAGE, REFUSED,
    bind_to(&srx()->fid, &cq()->fid, FI_RECV | UNKNOWN_FLAG))
ROW(BOTH, "srx/bind-transmit", PAGE, REFUSED,
    bind_to(&srx()->fid, &cq()->fid, FI_TRANSMIT))
ROW(BOTH, "srx/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&srx()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "srx/no-place", PAGE, -FI_EINVAL,
    fi_srx_context(domain(), info()->rx_attr, NULL, NULL))
ROW(BOTH, "srx/busy", PAGE, -FI_EBUSY,
    (spec.srx = true, ep(), fi_close(&srx()->fid)))
ROW(BOTH, "srx/size-beyond", CARRIED_OUT, 0, ({
	struct fi_rx_attr attr = *info()->rx_attr;
	struct fid_ep *beyond;

	attr.size = SIZE_MAX;
	fi_srx_context(domain(), &attr, &beyond, NULL);
    }))
ROW(BOTH, "srx/caps-unknown", CARRIED_OUT, 0, ({
	struct fi_rx_attr attr = *info()->rx_attr;
	struct fid_ep *made;

	attr.caps |= UNKNOWN_FLAG;
	fi_srx_context(domain(), &attr, &made, NULL);
    }))
ROW(BOTH, "srx/op-flags-unknown", CARRIED_OUT, 0, ({
	struct fi_rx_attr attr = *info()->rx_attr;
	struct fid_ep *beyond;

	attr.op_flags |= UNKNOWN_FLAG;
	fi_srx_context(domain(), &attr, &beyond, NULL);
    }))
