/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "model.h"

#include <stdlib.h>
#include <string.h>

void ct_lane_open(struct ct_lane *lane, int capacity)
{
	*lane = (struct ct_lane) { .capacity = capacity };
	lane->sent = calloc((size_t)capacity, sizeof(*lane->sent));
	lane->posted = calloc((size_t)capacity, sizeof(*lane->posted));
	REQUIRE(lane->sent && lane->posted);
}

void ct_lane_close(struct ct_lane *lane)
{
	for (int i = 0; i < lane->sent_count; i++)
		free(lane->sent[i].buf);
	for (int i = 0; i < lane->posted_count; i++)
		free(lane->posted[i].buf);
	free(lane->sent);
	free(lane->posted);
	*lane = (struct ct_lane) { 0 };
}

struct ct_sent *ct_lane_next_sent(struct ct_lane *lane)
{
	struct ct_sent *sent;

	if (lane->sent_count == lane->capacity)
		return NULL;
	sent = &lane->sent[lane->sent_count];
	*sent = (struct ct_sent) { .lane = lane, .receive = -1 };
	return sent;
}

struct ct_posted *ct_lane_next_posted(struct ct_lane *lane)
{
	struct ct_posted *posted;

	if (lane->posted_count == lane->capacity)
		return NULL;
	posted = &lane->posted[lane->posted_count];
	*posted = (struct ct_posted) { .lane = lane };
	return posted;
}

void ct_lane_commit_sent(struct ct_lane *lane)
{
	lane->sent_count++;
	lane->dirty = true;
}

void ct_lane_commit_posted(struct ct_lane *lane)
{
	lane->posted_count++;
	lane->dirty = true;
}

static bool accepts(bool tagged, uint64_t tag, uint64_t ignore,
		    const struct ct_sent *sent)
{
	return tagged == sent->tagged &&
	       (!tagged || (tag | ignore) == (sent->tag | ignore));
}

static void meet(struct ct_sent *sent, struct ct_posted *posted, int index)
{
	size_t left = posted->room - posted->used;

	sent->receive = index;
	posted->messages++;
	if (!posted->multi) {
		posted->closed = true;
		return;
	}
	sent->offset = posted->used;
	posted->used += sent->len < left ? sent->len : left;
	posted->closed = posted->room - posted->used < posted->min;
}

void ct_lane_match(struct ct_lane *lane)
{
	if (!lane->dirty)
		return;
	lane->dirty = false;
	for (int i = 0; i < lane->posted_count; i++) {
		struct ct_posted *posted = &lane->posted[i];

		posted->closed = posted->cancelled;
		posted->used = 0;
		posted->messages = 0;
	}
	for (int i = 0; i < lane->sent_count; i++) {
		struct ct_sent *sent = &lane->sent[i];
		int before = sent->receive;

		sent->receive = -1;
		for (int j = 0; j < lane->posted_count && !sent->removed; j++) {
			struct ct_posted *posted = &lane->posted[j];

			if (posted->closed ||
			    !accepts(posted->tagged, posted->tag,
				     posted->ignore, sent))
				continue;
			meet(sent, posted, j);
			break;
		}
		REQUIRE(!sent->delivered || sent->receive == before);
	}
}

struct ct_sent *ct_lane_waiting(struct ct_lane *lane, bool tagged,
				uint64_t tag, uint64_t ignore)
{
	ct_lane_match(lane);
	for (int i = 0; i < lane->sent_count; i++) {
		struct ct_sent *sent = &lane->sent[i];

		if (sent->receive < 0 && !sent->removed &&
		    accepts(tagged, tag, ignore, sent))
			return sent;
	}
	return NULL;
}

struct ct_sent *ct_lane_due(struct ct_lane *lane, struct ct_posted *posted,
			    const void *place)
{
	int index = (int)(posted - lane->posted);

	ct_lane_match(lane);
	for (int i = 0; i < lane->sent_count; i++) {
		struct ct_sent *sent = &lane->sent[i];

		if (sent->receive != index || sent->delivered)
			continue;
		/* The address of an empty message is not defined. */
		if (!posted->multi || !sent->len ||
		    place == posted->buf + sent->offset)
			return sent;
	}
	return NULL;
}
