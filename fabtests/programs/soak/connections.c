/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Connected endpoints that come and go: one domain listens, the other one connects, several
 * connections at a time. Some requests are rejected. Over an open connection both sides
 * send; then it ends in good order, when all has arrived, or with a shutdown, or at once,
 * with everything under way.
 */
#include <stdlib.h>
#include <string.h>

#include "connect.h"
#include "pattern.h"
#include "soak.h"
#include "wait.h"

enum { SLOTS = 4, OPS = 8, TOP = 300 << 10, EPOCH_CONNECTIONS = 40, MESSAGES = 40 };

enum ending { IN_ORDER, BY_SHUTDOWN, AT_ONCE, ENDINGS };

struct end;

struct transfer {
	struct fi_context2 context;	/* first: completions lead back here */
	struct end *end;
	bool open, receives;
	unsigned number;		/* of a receive: that of its message */
	unsigned char *buf;
};

/* One side of a connection. */
struct end {
	struct ct_peer peer;		/* the side's, with this endpoint */
	struct slot *slot;
	struct end *other;
	struct transfer sends[OPS], receives[OPS];
	bool connected, down;
	unsigned sent, posted, arrived;	/* messages, receives */
};

struct slot {
	struct end ends[2];		/* the one that is called, and the caller */
	enum { FREE, CALLING, OPEN } state;
	bool rejected;
	unsigned seed;
	enum ending ending;
	double until;
};

static struct {
	struct ct_peer sides[2];
	struct fid_pep *pep;
	unsigned char name[CT_NAME];
	struct slot slots[SLOTS];
	struct ct_random random;
	unsigned begun;
} scene;

static size_t length_of(unsigned seed)
{
	return seed % 16 ? seed % 3000 : seed / 16 % TOP;
}

static unsigned seed_of(const struct end *sender, unsigned number)
{
	return sender->slot->seed * 31 + (sender == sender->slot->ends) * 7 + number * 2654435761u;
}

static void post(struct end *end, struct transfer *transfer)
{
	struct ct_message message = { .buf = transfer->buf, .len = TOP, .context = transfer,
				      .from = FI_ADDR_UNSPEC };
	enum ct_send_form form = ct_below(&scene.random, CT_SEND_FORMS);
	unsigned seed = seed_of(end, end->sent);
	ssize_t ret;

	if (transfer->receives) {
		ret = ct_recv(&end->peer, ct_below(&scene.random, CT_RECV_FORMS), &message);
	} else {
		message.len = length_of(seed);
		if (message.len > ct_send_limit(&end->peer, form))
			form = CT_SEND;
		ct_fill(transfer->buf, message.len, seed);
		ret = ct_send(&end->peer, form, &message);
	}
	if (ret) {
		/* The other side may have closed. */
		NEED(ret == -FI_EAGAIN || end->slot->ending != IN_ORDER, "a transfer: %s",
		     fi_strerror((int)-ret));
		return;
	}
	transfer->open = transfer->receives || ct_send_completes(form);
	if (transfer->receives)
		transfer->number = end->posted++;
	else
		end->sent++;
	atomic_fetch_add(&board->messages, !transfer->receives);
}

static void done(const struct fi_cq_tagged_entry *entry, const struct fi_cq_err_entry *error)
{
	struct transfer *transfer = error ? error->op_context : entry->op_context;
	struct end *end = transfer->end;

	NEED(transfer->open, "a completion of a transfer that was complete");
	transfer->open = false;
	if (error) {
		NEED(end->slot->ending != IN_ORDER || end->down || end->other->down ||
		     end->slot->state != OPEN,
		     "a transfer of a good connection: %s (%d)", fi_strerror(error->err),
		     error->prov_errno);
		return;
	}
	if (transfer->receives) {
		unsigned seed = seed_of(end->other, transfer->number);

		NEED(entry->len == length_of(seed), "%zu bytes of %zu came", entry->len,
		     length_of(seed));
		NEED(ct_holds(transfer->buf, entry->len, seed), "wrong bytes");
		end->arrived++;
	}
}

static void read_queue(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entries[8];
	ssize_t ret;

	while ((ret = fi_cq_read(cq, entries, 8)) > 0 || ret == -FI_EAVAIL) {
		if (ret == -FI_EAVAIL) {
			struct fi_cq_err_entry error = { 0 };

			EXPECT(fi_cq_readerr(cq, &error, 0), 1);
			done(NULL, &error);
		}
		for (ssize_t i = 0; i < ret; i++)
			done(&entries[i], NULL);
	}
	NEED(ret == -FI_EAGAIN, "fi_cq_read: %zd", ret);
}

static void open_end(struct end *end, struct fi_info *info)
{
	int side = end != end->slot->ends;

	end->peer = scene.sides[side];
	end->peer.partner = NULL;
	ct_open_ep(&end->peer, info);
	end->connected = end->down = false;
	end->sent = end->posted = end->arrived = 0;
}

static void close_end(struct end *end)
{
	if (!end->peer.ep)
		return;
	OK(fi_close(&end->peer.ep->fid));
	read_queue(end->peer.tx.fid);
	end->peer.ep = NULL;
	for (int i = 0; i < OPS; i++)
		end->sends[i].open = end->receives[i].open = false;
}

static void end_slot(struct slot *slot)
{
	slot->ending = AT_ONCE;
	close_end(&slot->ends[ct_below(&scene.random, 2)]);
	close_end(&slot->ends[0]);
	close_end(&slot->ends[1]);
	slot->state = FREE;
}

static struct end *end_of(const struct fid *fid)
{
	for (int i = 0; i < SLOTS; i++)
		for (int j = 0; j < 2; j++)
			if (scene.slots[i].ends[j].peer.ep &&
			    &scene.slots[i].ends[j].peer.ep->fid == fid)
				return &scene.slots[i].ends[j];
	return NULL;
}

static void call(struct slot *slot)
{
	unsigned char which = (unsigned char)(slot - scene.slots);

	slot->seed = (unsigned)ct_bits(&scene.random);
	slot->ending = ct_below(&scene.random, ENDINGS);
	slot->rejected = ct_once_in(&scene.random, 8);
	slot->state = CALLING;
	slot->until = ct_now() + ct_patience();
	open_end(&slot->ends[1], scene.sides[1].info);
	OK(fi_connect(slot->ends[1].peer.ep, scene.name, &which, 1));
	scene.begun++;
}

static void requested(struct fi_eq_cm_entry *entry, size_t data_len)
{
	struct slot *slot;

	NEED(data_len == 1 && entry->data[0] < SLOTS, "a request with %zu bytes", data_len);
	slot = &scene.slots[entry->data[0]];
	NEED(slot->state == CALLING, "a request that nobody made");
	if (slot->rejected) {
		OK(fi_reject(scene.pep, entry->info->handle, NULL, 0));
	} else {
		open_end(&slot->ends[0], entry->info);
		OK(fi_accept(slot->ends[0].peer.ep, NULL, 0));
	}
	fi_freeinfo(entry->info);
}

static void read_events(struct fid_eq *eq)
{
	unsigned char room[sizeof(struct fi_eq_cm_entry) + CT_CM_DATA];
	struct fi_eq_cm_entry *entry = (struct fi_eq_cm_entry *)room;
	struct fi_eq_err_entry error = { 0 };
	uint32_t event;
	ssize_t ret = fi_eq_read(eq, &event, room, sizeof(room), 0);
	struct end *end;

	if (ret == -FI_EAGAIN)
		return;
	if (ret == -FI_EAVAIL) {
		NEED(fi_eq_readerr(eq, &error, 0) > 0, "fi_eq_readerr");
		end = end_of(error.fid);
		if (!end)
			return;
		NEED(end->slot->rejected, "a connection failed: %s", fi_strerror(error.err));
		end_slot(end->slot);
		return;
	}
	NEED(ret >= (ssize_t)sizeof(*entry), "fi_eq_read: %zd", ret);
	if (event == FI_CONNREQ) {
		requested(entry, (size_t)ret - sizeof(*entry));
		return;
	}
	end = end_of(entry->fid);
	/* It may have been closed since. */
	if (!end)
		return;
	if (event == FI_CONNECTED) {
		end->connected = true;
		if (end->other->connected)
			end->slot->state = OPEN;
	} else {
		NEED(event == FI_SHUTDOWN, "event %u", event);
		NEED(end->slot->ending != IN_ORDER, "a good connection was shut down");
		end->down = true;
	}
}

static void transfers(struct slot *slot)
{
	struct end *a = &slot->ends[0], *b = &slot->ends[1];

	NEED(ct_now() < slot->until, "a connection does not end: %u of %u and %u of %u arrived",
	     a->arrived, b->sent, b->arrived, a->sent);
	for (int i = 0; i < 2; i++) {
		struct end *end = &slot->ends[i];
		int which = (int)ct_below(&scene.random, OPS);

		if (!end->receives[which].open && !end->down)
			post(end, &end->receives[which]);
		which = (int)ct_below(&scene.random, OPS);
		if (!end->sends[which].open && end->sent < MESSAGES && !end->down)
			post(end, &end->sends[which]);
	}
	switch (slot->ending) {
	case IN_ORDER:
		if (a->sent == MESSAGES && b->sent == MESSAGES && a->arrived == MESSAGES &&
		    b->arrived == MESSAGES)
			end_slot(slot);
		break;
	case BY_SHUTDOWN:
		if (a->sent == MESSAGES / 2 && !a->down) {
			fi_shutdown(a->peer.ep, 0);
			a->down = true;
		}
		if (b->down)
			end_slot(slot);
		break;
	default:
		if (a->sent + b->sent > slot->seed % MESSAGES)
			end_slot(slot);
	}
}

/* Connections until so many have been made; all have ended then. */
void soak_connections(struct soak_usage *usage)
{
	bool any;
	unsigned until = scene.begun + EPOCH_CONNECTIONS;

	do {
		any = false;
		for (int i = 0; i < 2; i++) {
			read_queue(scene.sides[i].tx.fid);
			read_events(scene.sides[i].eq.fid);
		}
		for (int i = 0; i < SLOTS; i++) {
			struct slot *slot = &scene.slots[i];

			if (slot->state == FREE && scene.begun < until)
				call(slot);
			if (slot->state == OPEN)
				transfers(slot);
			any = any || slot->state != FREE;
			NEED(slot->state == FREE || ct_now() < slot->until,
			     "a connection is not made");
		}
	} while (any || scene.begun < until);
	atomic_fetch_add(&board->connections, EPOCH_CONNECTIONS);
	soak_usage_note(usage);
}

void soak_connections_open(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .one_cq = true };
	struct fi_info *info = ct_getinfo(&spec);

	ct_open_domain(&scene.sides[0], &spec, info, NULL, NULL);
	ct_open_domain(&scene.sides[1], &spec, fi_dupinfo(info), scene.sides[0].fabric, NULL);
	scene.pep = ct_listen(&scene.sides[0]);
	ct_name(&scene.pep->fid, scene.name, sizeof(scene.name));
	scene.random.state = board->seed;
	for (int i = 0; i < SLOTS; i++)
		for (int j = 0; j < 2; j++) {
			struct end *end = &scene.slots[i].ends[j];

			end->slot = &scene.slots[i];
			end->other = &scene.slots[i].ends[!j];
			for (int k = 0; k < OPS; k++) {
				end->sends[k].end = end->receives[k].end = end;
				end->receives[k].receives = true;
				end->sends[k].buf = malloc(TOP);
				end->receives[k].buf = malloc(TOP);
				NEED(end->sends[k].buf && end->receives[k].buf, "no memory");
				memset(end->sends[k].buf, 0, TOP);
				memset(end->receives[k].buf, 0, TOP);
			}
		}
}

void soak_connections_close(void)
{
	OK(fi_close(&scene.pep->fid));
	ct_close_peer(&scene.sides[1]);
	ct_close_peer(&scene.sides[0]);
}
