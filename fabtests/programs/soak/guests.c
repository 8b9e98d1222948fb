/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Guests: endpoints that come and go. Every other worker greets each of them with
 * a message, which it inserts into its address vector for that. A guest sends
 * messages, too, and closes when all have greeted it and its own messages have
 * left; or it deserts: it closes at any time, whatever is under way.
 */
#include <string.h>

#include "pattern.h"
#include "soak.h"

#define LANE(worker) (WORKERS + (worker)->number)

static int workers(void)
{
	return board->mode.stations * board->mode.threads;
}

/*
 * Between two guests of a worker, in seconds: each leaves connections, whose ports the kernel keeps for
 * a minute, and half of the ports is for listeners.
 */
#define GUEST_SECONDS (1 / 40.0)

static void close_guest(struct soak_guest *guest)
{
	OK(fi_close(&guest->ep->fid));
	guest->ep = NULL;
	OK(fi_close(&guest->cq->fid));
	guest->cq = NULL;
}

static void arrive(struct soak_worker *worker)
{
	struct soak_guest *guest = &worker->guest;
	struct ct_peer *peer = &guest->peer;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_info *info = fi_dupinfo(worker->station->peer.info);
	unsigned char *name = board->guests[worker->number].name;

	NEED(info, "no memory");
	*peer = worker->peer;
	guest->deserts = ct_once_in(&worker->random, 16);
	guest->until = ct_now() + (guest->deserts ? 0.02 : ct_patience());
	guest->sends = GUEST_MESSAGES;
	OK(fi_cq_open(peer->domain, &attr, &guest->cq, NULL));
	/* Its own address: that of the info is its station's. */
	if (info->src_addr && ct_opt.source) {
		struct ct_spec spec = worker->station->peer.spec;
		struct fi_info *hints = ct_hints(&spec), *own = NULL;

		OK(fi_getinfo(CT_API_VERSION, ct_opt.source, NULL, FI_SOURCE, hints, &own));
		fi_freeinfo(hints);
		fi_freeinfo(info);
		info = own;
	}
	OK(fi_endpoint(peer->domain, info, &guest->ep, NULL));
	fi_freeinfo(info);
	OK(fi_ep_bind(guest->ep, &peer->av->fid, 0));
	OK(fi_ep_bind(guest->ep, &guest->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(guest->ep));
	peer->ep = guest->ep;
	memset(name, 0, 256);
	ct_name(&guest->ep->fid, name, 256);
	if (soak_left_lately(name)) {
		close_guest(guest);
		return;
	}
	for (int i = 0; i < worker->visits.count; i++) {
		struct soak_op *op = &worker->visits.ops[i];
		ssize_t ret;

		atomic_store(&op->state, POSTED);
		ret = fi_recv(guest->ep, op->buf, op->room, NULL, FI_ADDR_UNSPEC, op);
		NEED(!ret, "a guest's receive: %s", fi_strerror((int)-ret));
	}
	atomic_store(&board->guests[worker->number].greeted, 0);
	atomic_store(&board->guests[worker->number].accepted, 0);
	atomic_store(&board->guests[worker->number].completed, 0);
	atomic_store(&board->guests[worker->number].deserts, guest->deserts);
	atomic_fetch_add(&board->guests[worker->number].changes, 1);
}

static bool own_sends_open(struct soak_worker *worker)
{
	for (int i = 0; i < worker->sends.count; i++)
		if (atomic_load(&worker->sends.ops[i].state) == POSTED &&
		    worker->sends.ops[i].lane == LANE(worker))
			return true;
	return false;
}

static void leave(struct soak_worker *worker)
{
	struct soak_guest *guest = &worker->guest;

	atomic_fetch_add(&board->guests[worker->number].changes, 1);
	soak_leaves(board->guests[worker->number].name);
	OK(fi_close(&guest->ep->fid));
	guest->ep = NULL;
	/* What completed before is still to be read, and nothing else comes. */
	while (soak_read(worker, guest->cq, 0))
		;
	OK(fi_close(&guest->cq->fid));
	guest->cq = NULL;
	for (int i = 0; i < worker->visits.count; i++)
		atomic_store(&worker->visits.ops[i].state, IDLE);
	for (int i = 0; i < worker->sends.count; i++)
		if (worker->sends.ops[i].lane == LANE(worker))
			atomic_store(&worker->sends.ops[i].state, IDLE);
	atomic_fetch_add(&board->guests_closed, 1);
}

void soak_guest_step(struct soak_worker *worker, bool more)
{
	struct soak_guest *guest = &worker->guest;
	unsigned greeted = atomic_load(&board->guests[worker->number].greeted);

	if (!guest->ep) {
		if (more && ct_once_in(&worker->random, 20) && ct_now() > guest->next) {
			guest->next = ct_now() + GUEST_SECONDS;
			arrive(worker);
		}
		return;
	}
	if (guest->sends && ct_once_in(&worker->random, 4)) {
		guest->sends--;
		soak_send_from(worker, &guest->peer, LANE(worker), guest->deserts);
	}
	if (guest->deserts ? ct_now() > guest->until :
			     greeted == (unsigned)workers() - 1 && !own_sends_open(worker))
		leave(worker);
	else
		NEED(ct_now() < guest->until || guest->deserts,
		     "the guest of %d waits: %u greetings have come, those of %#x were accepted, "
		     "of %#x completed; %s", worker->number, greeted,
		     atomic_load(&board->guests[worker->number].accepted),
		     atomic_load(&board->guests[worker->number].completed),
		     own_sends_open(worker) ? "its own message has not left" : "");
}

/* Greets the guests that are new to this worker. */
void soak_greet(struct soak_worker *worker)
{
	for (int i = 0; i < workers(); i++) {
		unsigned changes = atomic_load(&board->guests[i].changes);
		struct soak_op *op;
		unsigned char name[CT_NAME];
		bool deserts;
		ssize_t ret;

		if (i == worker->number || !(changes & 1) || worker->met[i] == changes)
			continue;
		op = soak_idle(&worker->greetings);
		if (!op)
			return;
		memcpy(name, board->guests[i].name, sizeof(name));
		deserts = atomic_load(&board->guests[i].deserts);
		if (atomic_load(&board->guests[i].changes) != changes)
			continue;
		op->addr = ct_insert(&worker->peer, name);
		op->to = i;
		op->number = changes;
		op->wild = deserts;
		op->len = 1 + ct_below(&worker->random, op->room);
		if (op->len > worker->peer.info->ep_attr->max_msg_size)
			op->len = worker->peer.info->ep_attr->max_msg_size;
		ct_fill(op->buf, op->len, changes + (unsigned)i);
		atomic_store(&op->state, POSTED);
		ret = fi_send(worker->peer.ep, op->buf, op->len, NULL, op->addr, op);
		if (ret) {
			NEED(ret == -FI_EAGAIN || deserts, "a greeting: %s", fi_strerror((int)-ret));
			OK(fi_av_remove(worker->peer.av, &op->addr, 1, 0));
			atomic_store(&op->state, IDLE);
			if (ret == -FI_EAGAIN)
				continue;
		}
		atomic_fetch_or(&board->guests[i].accepted, 1u << worker->number);
		worker->met[i] = changes;
	}
}

void soak_greeted(struct soak_op *op, const struct ct_completion *done)
{
	NEED(!done->err || op->wild, "a greeting of %zu bytes to the guest of %d: %s (%d)", op->len,
	     op->to, fi_strerror(done->err), done->prov_errno);
	atomic_fetch_or(&board->guests[op->to].completed, 1u << op->worker->number);
	OK(fi_av_remove(op->worker->peer.av, &op->addr, 1, 0));
	atomic_store(&op->state, IDLE);
}

/* A guest has received a greeting. */
void soak_visited(struct soak_op *op, const struct ct_completion *done)
{
	struct soak_worker *worker = op->worker;
	unsigned changes = atomic_load(&board->guests[worker->number].changes);

	if (done->err && !worker->guest.ep) {
		atomic_store(&op->state, IDLE);
		return;
	}
	NEED(!done->err, "a guest's receive: %s (%d)", fi_strerror(done->err), done->prov_errno);
	NEED(ct_holds(op->buf, done->len, (changes | 1) + (unsigned)worker->number) ||
	     ct_holds(op->buf, done->len, changes - 1 + (unsigned)worker->number),
	     "wrong bytes in a greeting");
	atomic_store(&op->state, IDLE);
	atomic_fetch_add(&board->guests[worker->number].greeted, 1);
}
