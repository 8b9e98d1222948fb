/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Scalable endpoints and their contexts. */
#include <rdma/fi_collective.h>

#include "row.h"

#define PAGE "fi_endpoint(3)"

static void two_contexts(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = 2;
	hints->ep_attr->rx_ctx_cnt = 2;
}

/* A scalable endpoint, and contexts of it, open and nothing more. */
static struct fid_ep *sep(void)
{
	static struct fid_ep *opened;

	if (!opened) {
		int ret;

		spec.hint = two_contexts;
		ret = fi_scalable_ep(domain(), info(), &opened, NULL);
		if (ret == -FI_ENOSYS)
			SKIP("there are no scalable endpoints");
		OK(ret);
	}
	return opened;
}

static struct fid_ep *opened_context;

static int open_tx(int index)
{
	return fi_tx_context(sep(), index, NULL, &opened_context, NULL);
}

static int open_rx(int index)
{
	return fi_rx_context(sep(), index, NULL, &opened_context, NULL);
}

static struct fid_ep *tx(void)
{
	static struct fid_ep *opened;

	if (!opened)
		OK(fi_tx_context(sep(), 0, NULL, &opened, NULL));
	return opened;
}

static struct fid_ep *rx(void)
{
	static struct fid_ep *opened;

	if (!opened)
		OK(fi_rx_context(sep(), 0, NULL, &opened, NULL));
	return opened;
}

static struct fid_stx *stx(void)
{
	static struct fid_stx *opened;

	if (!opened)
		OK(fi_stx_context(domain(), info()->tx_attr, &opened, NULL));
	return opened;
}

/* Which are ready for messages. */
static struct fid_ep *enabled_tx(void)
{
	OK(fi_scalable_ep_bind(sep(), &av()->fid, 0));
	OK(fi_ep_bind(tx(), &cq()->fid, FI_TRANSMIT));
	OK(fi_enable(tx()));
	return tx();
}

static struct fid_ep *enabled_rx(void)
{
	OK(fi_scalable_ep_bind(sep(), &av()->fid, 0));
	OK(fi_ep_bind(rx(), &cq()->fid, FI_RECV));
	OK(fi_enable(rx()));
	return rx();
}

ROW(RDM, "scalable/open", PAGE, 0, (sep(), 0))
ROW(RDM, "scalable/shared-receives", PAGE, 0, ({
	sep();
	if (!info()->domain_attr->max_ep_srx_ctx)
		SKIP("there are no shared receive contexts");
	info()->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	fi_scalable_ep(domain(), info(), &opened_context, NULL);
    }))
ROW(RDM, "scalable/shared-transmits", PAGE, 0, ({
	sep();
	info()->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	fi_scalable_ep(domain(), info(), &opened_context, NULL);
    }))
ROW(RDM, "scalable/triggered-operations", PAGE, 0, ({
	spec.caps |= FI_TRIGGER;
	sep();
	0;
    }))
ROW(RDM, "scalable/collective-operations", PAGE, REFUSED, ({
	sep();
	info()->caps |= FI_COLLECTIVE;
	fi_scalable_ep(domain(), info(), &opened_context, NULL);
    }))
ROW(RDM, "scalable/transmit-capabilities", PAGE, 0, ({
	struct fi_tx_attr attr = { .caps = FI_MSG | FI_SEND };

	fi_tx_context(sep(), 0, &attr, &opened_context, NULL);
    }))
ROW(RDM, "scalable/transmit-capabilities-beyond", PAGE, -FI_ENODATA, ({
	struct fi_tx_attr attr = { .caps = FI_COLLECTIVE };

	fi_tx_context(sep(), 0, &attr, &opened_context, NULL);
    }))
ROW(RDM, "scalable/transmit-context", PAGE, 0, open_tx(1))
ROW(RDM, "scalable/receive-context", PAGE, 0, open_rx(1))
ROW(RDM, "scalable/transmit-beyond", PAGE, -FI_EINVAL, open_tx(2))
ROW(RDM, "scalable/receive-beyond", PAGE, -FI_EINVAL, open_rx(2))
ROW(RDM, "scalable/transmit-negative", PAGE, -FI_EINVAL, open_tx(-1))
ROW(RDM, "scalable/receive-negative", PAGE, -FI_EINVAL, open_rx(-1))
ROW(RDM, "scalable/transmit-twice", PAGE, -FI_EBUSY, (tx(), open_tx(0)))
ROW(RDM, "scalable/receive-twice", PAGE, -FI_EBUSY, (rx(), open_rx(0)))
ROW(RDM, "scalable/transmit-again", PAGE, 0,
    (FIRST(fi_close(&tx()->fid)), open_tx(0)))
ROW(RDM, "scalable/receive-again", PAGE, 0,
    (FIRST(fi_close(&rx()->fid)), open_rx(0)))
ROW(RDM, "scalable/transmit-of-plain", PAGE, REFUSED,
    fi_tx_context(ep(), 0, NULL, &opened_context, NULL))
ROW(RDM, "scalable/receive-of-plain", PAGE, REFUSED,
    fi_rx_context(ep(), 0, NULL, &opened_context, NULL))
ROW(RDM, "scalable/transmit-size", PAGE, -FI_ENODATA, ({
	struct fi_tx_attr attr = { .size = (sep(), info()->tx_attr->size + 1) };

	fi_tx_context(sep(), 0, &attr, &opened_context, NULL);
    }))
ROW(RDM, "scalable/receive-size", PAGE, -FI_ENODATA, ({
	struct fi_rx_attr attr = { .size = (sep(), info()->rx_attr->size + 1) };

	fi_rx_context(sep(), 0, &attr, &opened_context, NULL);
    }))

ROW(RDM, "scalable/bind-av", PAGE, 0,
    fi_scalable_ep_bind(sep(), &av()->fid, 0))
ROW(RDM, "scalable/bind-av-twice", PAGE, -FI_EINVAL,
    (FIRST(fi_scalable_ep_bind(sep(), &av()->fid, 0)),
     fi_scalable_ep_bind(sep(), &av()->fid, 0)))
ROW(RDM, "scalable/bind-nothing", PAGE, -FI_EINVAL,
    fi_scalable_ep_bind(sep(), NULL, 0))
ROW(RDM, "scalable/bind-domain", PAGE, -FI_EINVAL,
    fi_scalable_ep_bind(sep(), &domain()->fid, 0))
ROW(RDM, "scalable/bind-av-to-context", PAGE, -FI_EINVAL,
    fi_ep_bind(tx(), &av()->fid, 0))
ROW(RDM, "scalable/bind-cq", PAGE, 0,
    fi_ep_bind(tx(), &cq()->fid, FI_TRANSMIT))
ROW(RDM, "scalable/bind-cq-twice", PAGE, -FI_EINVAL,
    (FIRST(fi_ep_bind(rx(), &cq()->fid, FI_RECV)),
     fi_ep_bind(rx(), &cq()->fid, FI_RECV)))
ROW(RDM, "scalable/bind-counter", PAGE, 0,
    fi_ep_bind(rx(), &cntr()->fid, FI_RECV))

ROW(RDM, "scalable/bind-srx", PAGE, 0, fi_scalable_ep_bind(sep(), &srx()->fid, 0))
ROW(RDM, "scalable/bind-stx", PAGE, 0, fi_scalable_ep_bind(sep(), &stx()->fid, 0))
ROW(RDM, "scalable/bind-srx-to-context", PAGE, 0, fi_ep_bind(rx(), &srx()->fid, 0))
ROW(RDM, "scalable/bind-stx-to-context", PAGE, 0, fi_ep_bind(tx(), &stx()->fid, 0))
ROW(RDM, "scalable/bind-srx-to-transmit-context", PAGE, -FI_EINVAL,
    fi_ep_bind(tx(), &srx()->fid, 0))
ROW(RDM, "scalable/bind-stx-to-receive-context", PAGE, -FI_EINVAL,
    fi_ep_bind(rx(), &stx()->fid, 0))
ROW(RDM, "scalable/bind-srx-late", PAGE, 0,
    (enabled_tx(), fi_ep_bind(rx(), &srx()->fid, 0)))
ROW(RDM, "scalable/bind-srx-late-to-all", PAGE, 0,
    (enabled_tx(), fi_scalable_ep_bind(sep(), &srx()->fid, 0)))
ROW(RDM, "scalable/busy-srx", PAGE, -FI_EBUSY,
    (FIRST(fi_ep_bind(rx(), &srx()->fid, 0)), fi_close(&srx()->fid)))
ROW(RDM, "scalable/join-collective", "fi_collective(3)", -FI_ENOSYS, ({
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL, .stride = 1,
	};
	struct fid_av_set *set;
	struct fid_mc *group;

	OK(fi_av_set(av(), &attr, &set, NULL));
	fi_join_collective(enabled_tx(), FI_ADDR_NOTAVAIL, set, 0, &group, NULL);
    }))
ROW(RDM, "scalable/enable-no-av", PAGE, -FI_ENOAV,
    (FIRST(fi_ep_bind(tx(), &cq()->fid, FI_TRANSMIT)), fi_enable(tx())))
ROW(RDM, "scalable/enable-no-cq", PAGE, ct_needs_queues() ? -FI_ENOCQ : 0,
    (FIRST(fi_scalable_ep_bind(sep(), &av()->fid, 0)), fi_enable(rx())))
ROW(RDM, "scalable/enable-all", PAGE, 0, ({
	OK(fi_scalable_ep_bind(sep(), &av()->fid, 0));
	OK(fi_ep_bind(tx(), &cq()->fid, FI_TRANSMIT));
	OK(fi_ep_bind(rx(), &cq()->fid, FI_RECV));
	fi_enable(sep());
    }))
ROW(RDM, "scalable/disabled-send", PAGE, -FI_EOPBADSTATE,
    fi_send(tx(), memory, 8, NULL, 0, context))
ROW(RDM, "scalable/send-to-nobody", PAGE, -FI_EINVAL,
    fi_send(enabled_tx(), memory, 8, NULL, fi_rx_addr(0, 1, 4), context))
ROW(RDM, "scalable/receive", PAGE, 0,
    fi_recv(enabled_rx(), memory, 8, NULL, FI_ADDR_UNSPEC, context))
ROW(RDM, "scalable/receive-at-transmit-context", PAGE, REFUSED,
    fi_recv(enabled_tx(), memory, 8, NULL, FI_ADDR_UNSPEC, context))
ROW(RDM, "scalable/send-at-receive-context", PAGE, REFUSED,
    fi_send(enabled_rx(), memory, 8, NULL, 0, context))
ROW(RDM, "scalable/send-at-itself", PAGE, REFUSED,
    fi_send(sep(), memory, 8, NULL, 0, context))
ROW(RDM, "scalable/cancel-at-itself", PAGE, REFUSED,
    fi_cancel(&sep()->fid, context))
ROW(RDM, "scalable/cancel-unknown", PAGE, 0,
    fi_cancel(&enabled_rx()->fid, context))

ROW(RDM, "scalable/busy-transmit", PAGE, -FI_EBUSY,
    (tx(), fi_close(&sep()->fid)))
ROW(RDM, "scalable/busy-receive", PAGE, -FI_EBUSY,
    (rx(), fi_close(&sep()->fid)))
ROW(RDM, "scalable/busy-alias", PAGE, -FI_EBUSY, ({
	OK(fi_ep_alias(tx(), &opened_context, FI_TRANSMIT));
	fi_close(&tx()->fid);
    }))
ROW(RDM, "scalable/busy-queue", PAGE, -FI_EBUSY,
    (enabled_tx(), fi_close(&cq()->fid)))
ROW(RDM, "scalable/close", PAGE, 0, ({
	OK(fi_close(&enabled_tx()->fid));
	fi_close(&sep()->fid);
    }))
ROW(RDM, "scalable/alias-no-direction", PAGE, -FI_EINVAL,
    fi_ep_alias(sep(), &opened_context, 0))
ROW(RDM, "scalable/connect", PAGE, REFUSED,
    fi_connect(sep(), somewhere(), NULL, 0))
