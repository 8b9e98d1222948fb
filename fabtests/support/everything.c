/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "everything.h"

#include <string.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "memory.h"
#include "transfer.h"
#include "wait.h"

#define SIZE (256 * 1024)

static struct fi_provider provider = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(1, 5),
	.name = "cteverything",
};

static void all_caps(struct fi_info *hints)
{
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
}

struct ct_spec ct_everything_spec(enum fi_threading threading,
				  enum fi_progress progress)
{
	struct ct_spec spec = {
		.wait = FI_WAIT_FD, .eq = true,
		.counters = FI_SEND | FI_RECV,
		.threading = threading, .progress = progress,
		.hint = all_caps,
	};
	struct fi_info *hints = ct_hints(&spec), *info = NULL;

	/* Connected endpoints of some providers have neither. */
	if (fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
		       ct_opt.source ? FI_SOURCE : 0, hints, &info)) {
		spec.hint = NULL;
		spec.caps = FI_MSG | FI_RMA;
	}
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return spec;
}

static void parameters_and_log(bool prints)
{
	enum fi_log_level level = prints ? FI_LOG_WARN : FI_LOG_TRACE;
	struct fi_param *params;
	uint64_t when = 0;
	int count, value;

	OK(fi_param_define(&provider, "some", FI_PARAM_INT, "some %s", "text"));
	EXPECT(fi_param_get_int(&provider, "some", &value), -FI_ENODATA);
	OK(fi_getparams(&params, &count));
	REQUIRE(count > 1);
	fi_freeparams(params);
	if (fi_log_enabled(&provider, level, FI_LOG_CORE) || prints)
		fi_log(&provider, level, FI_LOG_CORE, __func__, __LINE__,
		       "%s", "a line");
	fi_log_ready(&provider, level, FI_LOG_CORE, &when);
}

static void texts(const struct fi_info *info)
{
	char text[4096];

	REQUIRE(fi_version());
	REQUIRE(strlen(fi_strerror(FI_EAGAIN)));
	REQUIRE(strlen(fi_tostr(info, FI_TYPE_INFO)));
	REQUIRE(fi_tostr_r(text, sizeof(text), info, FI_TYPE_INFO));
}

static void infos(const struct ct_spec *spec)
{
	struct fi_info *hints = ct_hints(spec), *info, *copy;

	OK(fi_getinfo(CT_API_VERSION, ct_opt.source, ct_opt.source ? "0" : NULL,
		      ct_opt.source ? FI_SOURCE : 0, hints, &info));
	copy = fi_dupinfo(info);
	REQUIRE(copy);
	fi_freeinfo(copy);
	fi_freeinfo(info);
	if (ct_opt.source) {
		/* A name that has to be looked up. */
		OK(fi_getinfo(CT_API_VERSION, "localhost", "7", 0, hints, &info));
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
	if (!fi_getinfo(CT_API_VERSION, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &info))
		fi_freeinfo(info);
}

static void options(struct ct_pair *pair)
{
	unsigned char name[CT_NAME];
	size_t value = 0, len = sizeof(value);
	int fd;

	OK(fi_getopt(&pair->a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
		     &value, &len));
	OK(fi_setopt(&pair->a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
		     &value, sizeof(value)));
	OK(fi_control(&pair->a.rx.fid->fid, FI_GETWAIT, &fd));
	ct_name(&pair->a.ep->fid, name, sizeof(name));
	len = sizeof(name);
	if (ct_opt.type == FI_EP_MSG)
		OK(fi_getpeer(pair->a.ep, name, &len));
}

static void addresses(struct ct_peer *peer)
{
	unsigned char name[CT_NAME];
	char text[256];
	size_t len = sizeof(name), text_len = sizeof(text);
	fi_addr_t addr;

	if (!peer->av)
		return;
	OK(fi_av_lookup(peer->av, peer->to, name, &len));
	REQUIRE(fi_av_straddr(peer->av, name, text, &text_len));
	EXPECT(fi_av_insert(peer->av, name, 1, &addr, 0, NULL), 1);
	if (addr != peer->to)
		OK(fi_av_remove(peer->av, &addr, 1, 0));
	if (ct_opt.source &&
	    fi_av_insertsvc(peer->av, "localhost", "7", &addr, 0, NULL) == 1)
		OK(fi_av_remove(peer->av, &addr, 1, 0));
}

static void events(struct ct_peer *peer)
{
	struct fi_eq_entry entry = { .fid = &peer->ep->fid }, got;
	struct fi_eq_err_entry error = { 0 };
	char text[128];
	uint32_t type;

	EXPECT(fi_eq_write(peer->eq.fid, FI_NOTIFY, &entry, sizeof(entry), 0),
	       sizeof(entry));
	EXPECT(fi_eq_read(peer->eq.fid, &type, &got, sizeof(got), 0),
	       sizeof(got));
	EXPECT(fi_eq_readerr(peer->eq.fid, &error, 0), -FI_EAGAIN);
	REQUIRE(fi_eq_strerror(peer->eq.fid, 1, NULL, text, sizeof(text)));
}

static void queues(struct ct_peer *peer)
{
	struct fi_cq_err_entry error = { 0 };
	struct fid_cntr *cntr = peer->cntr[CT_CNTR_RECV];
	struct fid *fid = &peer->rx.fid->fid;
	char text[128];
	uint64_t value = fi_cntr_read(cntr);

	EXPECT(fi_cq_readerr(peer->rx.fid, &error, 0), -FI_EAGAIN);
	REQUIRE(fi_cq_strerror(peer->rx.fid, 1, NULL, text, sizeof(text)));
	fi_trywait(peer->fabric, &fid, 1);
	OK(fi_cntr_add(cntr, 2));
	OK(fi_cntr_adderr(cntr, 1));
	EXPECT(fi_cntr_readerr(cntr), 1);
	OK(fi_cntr_seterr(cntr, 0));
	OK(fi_cntr_set(cntr, value));
}

static void waits(struct ct_peer *peer)
{
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_poll_attr poll_attr = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_eq_entry event;
	struct fid_wait *set;
	struct fid_poll *poll;
	void *contexts[2];
	fi_addr_t from;
	uint32_t type;

	OK(fi_cq_signal(peer->rx.fid));
	fi_cq_sread(peer->rx.fid, &entry, 1, NULL, 1);
	fi_cq_sreadfrom(peer->rx.fid, &entry, 1, &from, NULL, 1);
	fi_eq_sread(peer->eq.fid, &type, &event, sizeof(event), 1, 0);
	fi_cntr_wait(peer->cntr[CT_CNTR_RECV], 1u << 30, 1);
	OK(fi_poll_open(peer->domain, &poll_attr, &poll));
	OK(fi_poll_add(poll, &peer->rx.fid->fid, 0));
	fi_poll(poll, contexts, 2);
	OK(fi_poll_del(poll, &peer->rx.fid->fid, 0));
	OK(fi_close(&poll->fid));
	if (!fi_wait_open(peer->fabric, &wait_attr, &set)) {
		fi_wait(set, 1);
		OK(fi_close(&set->fid));
	}
}

/* Reads completions until a remote write has been reported, too. */
static void settle(struct ct_pair *pair, void *context, bool completes)
{
	if (completes)
		ct_done(&pair->a, &pair->a.tx, context);
	ct_progress(&pair->a);
}

static void messages(struct ct_pair *pair, struct ct_memory *out,
		     struct ct_memory *in, size_t len, bool tagged)
{
	static struct fi_context2 tx_context, rx_context;

	for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
		struct ct_message m = { .tagged = tagged, .len = len };
		enum ct_recv_form receive = form % CT_RECV_FORMS;

		if (len > ct_send_limit(&pair->a, form))
			continue;
		m.from = FI_ADDR_UNSPEC;
		m.buf = in->data;
		m.desc = in->desc;
		m.context = &rx_context;
		POST(&pair->b, ct_recv(&pair->b, receive, &m));
		m.buf = out->data;
		m.desc = out->desc;
		m.context = &tx_context;
		POST(&pair->a, ct_send(&pair->a, form, &m));
		ct_done(&pair->b, &pair->b.rx, &rx_context);
		settle(pair, &tx_context, ct_send_completes(form));
	}
}

static void remote(struct ct_pair *pair, struct ct_memory *out,
		   struct ct_memory *in, size_t len)
{
	static struct fi_context2 context;

	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		struct ct_rma r = {
			.buf = out->data, .len = len, .desc = out->desc,
			.addr = in->addr, .key = in->key, .context = &context,
		};

		if (len > ct_rma_limit(&pair->a, form))
			continue;
		POST(&pair->a, ct_rma(&pair->a, form, &r));
		settle(pair, &context, ct_rma_completes(form));
		if (ct_rma_has_data(form))
			ct_next(&pair->b, &pair->b.rx);
	}
}

static void atomics(struct ct_pair *pair, struct ct_memory *out,
		    struct ct_memory *in)
{
	static struct fi_context2 context;
	struct ct_peer *a = &pair->a;
	uint64_t *operand = (uint64_t *)out->data;

	POST(a, fi_atomic(a->ep, operand, 1, out->desc, a->to, in->addr,
			  in->key, FI_UINT64, FI_SUM, &context));
	ct_done(a, &a->tx, &context);
	POST(a, fi_inject_atomic(a->ep, operand, 1, a->to, in->addr, in->key,
				 FI_UINT64, FI_SUM));
	POST(a, fi_fetch_atomic(a->ep, operand, 1, out->desc, operand + 1,
				out->desc, a->to, in->addr, in->key, FI_UINT64,
				FI_SUM, &context));
	ct_done(a, &a->tx, &context);
	POST(a, fi_compare_atomic(a->ep, operand, 1, out->desc, operand + 1,
				  out->desc, operand + 2, out->desc, a->to,
				  in->addr, in->key, FI_UINT64, FI_CSWAP,
				  &context));
	ct_done(a, &a->tx, &context);
}

static void cancelled(struct ct_peer *peer)
{
	static struct fi_context2 context;

	POST(peer, fi_recv(peer->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &context));
	OK(fi_cancel(&peer->ep->fid, &context));
	EXPECT(ct_error(peer, &peer->rx).err, FI_ECANCELED);
}

static void transfers(struct ct_pair *pair)
{
	static const size_t sizes[] = { 8, 2048, SIZE };
	struct ct_memory out, in;

	ct_memory_open(&pair->a, &out, SIZE, FI_SEND | FI_READ | FI_WRITE);
	ct_memory_open(&pair->b, &in, SIZE, FI_RECV | FI_REMOTE_READ |
		       FI_REMOTE_WRITE);
	for (size_t i = 0; i < 3; i++) {
		messages(pair, &out, &in, sizes[i], false);
		if (ct_has(&pair->a, FI_TAGGED))
			messages(pair, &out, &in, sizes[i], true);
		remote(pair, &out, &in, sizes[i]);
	}
	if (ct_has(&pair->a, FI_ATOMIC))
		atomics(pair, &out, &in);
	ct_memory_close(&out);
	ct_memory_close(&in);
}

void ct_everything(const struct ct_spec *spec, struct ct_everything how)
{
	struct ct_pair own, *pair = how.open ? how.open : &own;
	struct fid *object;

	parameters_and_log(how.prints);
	infos(spec);
	if (!fi_open(FI_VERSION(1, 13), "mr_cache", NULL, 0, 0, &object, NULL))
		OK(fi_close(object));
	if (!how.open)
		ct_open_pair(pair, spec);
	texts(pair->a.info);
	options(pair);
	ct_warm_up(pair);
	addresses(&pair->a);
	events(&pair->a);
	queues(&pair->a);
	if (how.waits)
		waits(&pair->a);
	transfers(pair);
	cancelled(&pair->b);
	ct_close_pair(pair);
}
