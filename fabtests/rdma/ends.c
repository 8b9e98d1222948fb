/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "ends.h"

#include <stdlib.h>
#include <string.h>

struct fi_info *hints_for(enum fi_ep_type type, uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	REQUIRE(hints);
	hints->ep_attr->type = type;
	hints->caps = caps;
	hints->mode = FI_RX_CQ_DATA | FI_MSG_PREFIX;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(ct_opt.provider ? ct_opt.provider : "verbs");
	return hints;
}

void open_place(struct place *place, const struct wish *wish)
{
	struct fi_info *hints = hints_for(FI_EP_MSG, FI_MSG | FI_RMA | FI_ATOMIC);
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_UNSPEC };

	memset(place, 0, sizeof(*place));
	if (wish && wish->shared)
		hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	OK(fi_getinfo(FI_VERSION(1, 18), ct_opt.source, NULL, ct_opt.source ? FI_SOURCE : 0,
		      hints, &place->info));
	OK(fi_fabric(place->info->fabric_attr, &place->fabric, NULL));
	OK(fi_eq_open(place->fabric, &eq, &place->eq, NULL));
	OK(fi_passive_ep(place->fabric, place->info, &place->pep, NULL));
	OK(fi_pep_bind(place->pep, &place->eq->fid, 0));
	OK(fi_listen(place->pep));
	place->length = sizeof(place->address);
	OK(fi_getname(&place->pep->fid, &place->address, &place->length));
	OK(fi_domain(place->fabric, place->info, &place->domain, NULL));
	fi_freeinfo(hints);
}

void close_place(struct place *place)
{
	OK(fi_close(&place->domain->fid));
	OK(fi_close(&place->pep->fid));
	OK(fi_close(&place->eq->fid));
	OK(fi_close(&place->fabric->fid));
	fi_freeinfo(place->info);
}

void open_end(struct end *end, struct place *place, struct fi_info *info,
	      const struct wish *wish, struct fid_ep *srx)
{
	static const struct wish nothing;
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA };
	struct fi_cntr_attr cntr = { .events = FI_CNTR_EVENTS_COMP };
	uint64_t selective;
	size_t memory;

	wish = wish ? wish : &nothing;
	memory = wish->memory ? wish->memory : MEMORY;
	selective = wish->selective ? FI_SELECTIVE_COMPLETION : 0;
	cq.wait_obj = wish->wait;
	cq.size = wish->queue_size;
	memset(end, 0, sizeof(*end));
	end->info = info;
	end->domain = place->domain;
	OK(fi_endpoint(end->domain, info, &end->ep, end));
	OK(fi_cq_open(end->domain, &cq, &end->tx, NULL));
	OK(fi_cq_open(end->domain, &cq, &end->rx, NULL));
	OK(fi_ep_bind(end->ep, &end->tx->fid, FI_TRANSMIT | selective));
	OK(fi_ep_bind(end->ep, &end->rx->fid, FI_RECV));
	OK(fi_ep_bind(end->ep, &place->eq->fid, 0));
	if (srx)
		OK(fi_ep_bind(end->ep, &srx->fid, 0));
	end->srx = srx;
	if (wish->counters) {
		OK(fi_cntr_open(end->domain, &cntr, &end->sent, NULL));
		OK(fi_cntr_open(end->domain, &cntr, &end->received, NULL));
		OK(fi_ep_bind(end->ep, &end->sent->fid, FI_SEND | FI_WRITE | FI_READ));
		OK(fi_ep_bind(end->ep, &end->received->fid, FI_RECV));
	}
	OK(fi_enable(end->ep));
	end->memory = aligned_alloc(4096, memory);
	REQUIRE(end->memory);
	memset(end->memory, 0, memory);
	OK(fi_mr_reg(end->domain, end->memory, memory,
		     FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
		     0, 0, 0, &end->mr, NULL));
	end->desc = fi_mr_desc(end->mr);
	end->key = fi_mr_key(end->mr);
}

void close_end(struct end *end)
{
	OK(fi_close(&end->ep->fid));
	OK(fi_close(&end->mr->fid));
	OK(fi_close(&end->tx->fid));
	OK(fi_close(&end->rx->fid));
	if (end->sent) {
		OK(fi_close(&end->sent->fid));
		OK(fi_close(&end->received->fid));
	}
	free(end->memory);
}

void connect_ends(struct place *place, const struct wish *wish,
		  struct end *active, struct end *passive, struct fid_ep *srx)
{
	struct fi_info *mine = fi_dupinfo(place->info);
	struct fi_eq_cm_entry entry;
	uint32_t kind;
	int connected;

	if (wish && wish->shared)
		mine->ep_attr->rx_ctx_cnt = 1;
	open_end(active, place, mine, wish, NULL);
	OK(fi_connect(active->ep, &place->address, NULL, 0));
	event_of(place, FI_CONNREQ, &entry, sizeof(entry));
	open_end(passive, place, entry.info, wish, srx);
	OK(fi_accept(passive->ep, NULL, 0));
	for (connected = 0; connected < 2; connected++) {
		EXPECT(fi_eq_sread(place->eq, &kind, &entry, sizeof(entry),
				   (int)(ct_patience() * 1000), 0), sizeof(entry));
		EXPECT(kind, FI_CONNECTED);
	}
	fi_freeinfo(mine);
	fi_freeinfo(passive->info);
	active->info = passive->info = NULL;
}

size_t event_of(struct place *place, uint32_t kind, struct fi_eq_cm_entry *entry, size_t room)
{
	uint32_t found;
	ssize_t length = fi_eq_sread(place->eq, &found, entry, room,
				     (int)(ct_patience() * 1000), 0);

	if (length == -FI_EAVAIL)
		ct_fail(__FILE__, __LINE__, "event %u: error %d", kind,
			failed_event(place).err);
	if (length < 0)
		ct_fail(__FILE__, __LINE__, "event %u: %s", kind, fi_strerror((int)-length));
	EXPECT(found, kind);
	return (size_t)length - sizeof(*entry);
}

struct fi_eq_err_entry failed_event(struct place *place)
{
	struct fi_eq_err_entry error;
	double until = ct_now() + ct_patience();
	struct fi_eq_cm_entry entry;
	uint32_t kind;

	while (fi_eq_read(place->eq, &kind, &entry, sizeof(entry), FI_PEEK) != -FI_EAVAIL)
		REQUIRE(ct_now() < until);
	memset(&error, 0, sizeof(error));
	EXPECT(fi_eq_readerr(place->eq, &error, 0), sizeof(error));
	return error;
}

struct fi_cq_data_entry done(struct fid_cq *cq, void *context)
{
	struct fi_cq_data_entry entry;
	double until = ct_now() + ct_patience();
	ssize_t read;

	memset(&entry, 0, sizeof(entry));
	while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		REQUIRE(ct_now() < until);
	if (read == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		fi_cq_readerr(cq, &error, 0);
		ct_fail(__FILE__, __LINE__, "an error: %s (%s)", fi_strerror(error.err),
			fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0));
	}
	EXPECT(read, 1);
	REQUIRE(entry.op_context == context);
	return entry;
}

struct fi_cq_err_entry failed(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_data_entry entry;
	double until = ct_now() + ct_patience();
	ssize_t read;

	while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		REQUIRE(ct_now() < until);
	EXPECT(read, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(cq, &error, 0), 1);
	return error;
}

bool stays_empty(struct fid_cq *cq)
{
	struct fi_cq_data_entry entry;
	double until = ct_now() + 0.2;

	while (ct_now() < until)
		if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
			return false;
	return true;
}
