/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Processes each of which sends to and receives from every other one, messages
 * of all sizes. One of them is killed during that. The others get errors from
 * the operations that they have with that one and from no others; they
 * continue with each other, and leave nothing behind in /dev/shm.
 *
 * CT_RUNS=<number> repeats it that often, CT_SEED=<number> runs it once, with
 * the time of death that this number determines.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "memory.h"
#include "pattern.h"
#include "random.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { MOST = 8, WINDOW = 2, LONGEST = 1 << 20, ENOUGH = 20, NAMES = 64 };

/* Set in the last message from one process to another. */
#define LAST (1ULL << 63)

static const size_t lengths[] = { 8, 0, 8, 100, 4096, 8, 20000, 8, 200000, 8,
				  1, LONGEST };

/* Of the processes, of which each knows its own place. */
static struct {
	int count, victim, self;
} crowd;

struct other;

struct op {
	struct fi_context2 context;	/* first: completions lead back here */
	struct other *of;
	bool open, receives;
	uint64_t number;
	unsigned char *data;
};

/* The state of one process about another one. */
struct other {
	int place;
	fi_addr_t addr;
	struct op tx[WINDOW], rx[WINDOW];
	uint64_t sent, posted, received;
	uint64_t since;			/* received when the victim was gone */
	bool gone;			/* an operation has failed */
	bool says_last, heard_last;
};

struct member {
	struct ct_peer peer;
	struct ct_memory memory;
	struct other others[MOST];
	bool leaves;
};

static size_t length_of(uint64_t number)
{
	return lengths[number % (sizeof(lengths) / sizeof(lengths[0]))];
}

static unsigned seed_of(int from, int to, uint64_t number)
{
	return (unsigned)(from * 100 + to + (int)number * 10000);
}

/* Those that messages are exchanged with. */
static bool alive(const struct other *other)
{
	return other->place != crowd.self && !other->gone;
}

#define EACH(other, member)						\
	(struct other *other = (member)->others;			\
	 other < (member)->others + crowd.count; other++)

static void opened(struct other *other, struct op *op, uint64_t number)
{
	op->of = other;
	op->number = number;
	op->open = true;
}

static void post_receive(struct member *member, struct other *other,
			 struct op *op)
{
	struct ct_message message = {
		.tagged = true, .buf = op->data, .len = LONGEST,
		.desc = member->memory.desc, .tag = other->posted,
		.ignore = LAST, .from = other->addr, .context = op,
	};
	ssize_t ret = ct_recv(&member->peer, CT_RECV, &message);

	if (ret == -FI_EAGAIN)
		return;
	REQUIRE(!ret);
	opened(other, op, other->posted++);
}

static void post_send(struct member *member, struct other *other,
		      struct op *op)
{
	bool is_last = member->leaves;
	struct ct_message message = {
		.tagged = true, .buf = op->data,
		.len = is_last ? 0 : length_of(other->sent),
		.desc = member->memory.desc,
		.tag = other->sent | (is_last ? LAST : 0), .context = op,
	};
	ssize_t ret;

	ct_fill(op->data, message.len,
		seed_of(crowd.self, other->place, other->sent));
	member->peer.to = other->addr;
	ret = ct_send(&member->peer, CT_SEND, &message);
	if (ret == -FI_EAGAIN)
		return;
	/* An immediate error has no completion. */
	if (ret) {
		REQUIRE(other->place == crowd.victim);
		other->gone = true;
		return;
	}
	other->says_last = is_last;
	opened(other, op, other->sent++);
}

static void has_come(struct other *other, struct op *op,
		     const struct ct_completion *end)
{
	/* A long message may complete after a short one that was sent later. */
	other->received++;
	if (end->tag & LAST) {
		REQUIRE(end->len == 0);
		other->heard_last = true;
		return;
	}
	REQUIRE(end->len == length_of(op->number));
	REQUIRE(ct_holds(op->data, end->len,
			 seed_of(other->place, crowd.self, op->number)));
}

/* Handles completions. */
static void reap(struct member *member)
{
	struct ct_cq *cqs[] = { &member->peer.tx, &member->peer.rx };

	ct_progress(&member->peer);
	for (size_t i = 0; i < 2; i++)
		while (cqs[i]->count) {
			struct ct_completion end = ct_next(&member->peer,
							   cqs[i]);
			struct op *op = end.context;
			struct other *other = op->of;

			REQUIRE(op->open);
			op->open = false;
			if (end.err) {
				/* Cancelled, after the last message. */
				if (other->heard_last && op->receives &&
				    end.err == FI_ECANCELED)
					continue;
				REQUIRE(other->place == crowd.victim);
				other->gone = true;
			} else if (op->receives) {
				has_come(other, op, &end);
			}
		}
}

/* Keeps all windows full. */
static void keep_busy(struct member *member)
{
	reap(member);
	for EACH(other, member)
		for (int i = 0; i < WINDOW && alive(other); i++) {
			if (!other->rx[i].open && !other->heard_last)
				post_receive(member, other, &other->rx[i]);
			if (!other->tx[i].open && !other->says_last)
				post_send(member, other, &other->tx[i]);
		}
}

#define BUSY_UNTIL(member, cond) CT_UNTIL(cond, keep_busy(member))

static bool all_have_sent(struct member *member, uint64_t count)
{
	for EACH(other, member)
		if (alive(other) && other->received < other->since + count)
			return false;
	return true;
}

static bool nothing_open(const struct other *other)
{
	for (int i = 0; i < WINDOW; i++)
		if (other->tx[i].open || other->rx[i].open)
			return false;
	return true;
}

static void take_back_receives(struct member *member, struct other *other)
{
	for (int i = 0; i < WINDOW; i++)
		if (other->rx[i].open) {
			int ret = fi_cancel(&member->peer.ep->fid,
					    &other->rx[i]);

			REQUIRE(ret == 0 || ret == -FI_ENOENT);
		}
}

static bool heard_all(struct member *member)
{
	for EACH(other, member) {
		if (!alive(other))
			continue;
		if (!other->says_last || !other->heard_last)
			return false;
		for (int i = 0; i < WINDOW; i++)
			if (other->tx[i].open)
				return false;
	}
	return true;
}

static bool nothing_left(struct member *member)
{
	for EACH(other, member)
		if (!nothing_open(other))
			return false;
	return true;
}

static void join(struct member *member, int fd)
{
	static const struct ct_spec spec = {
		.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV,
	};
	struct ct_card cards[MOST], own = { 0 };
	unsigned char *data;

	/* Those that are gone are not waited for long. */
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "5000", 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", "5000", 1));
	ct_open_domain(&member->peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(&member->peer, member->peer.info);
	ct_name(&member->peer.ep->fid, own.name, sizeof(own.name));
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, cards, sizeof(cards[0]) * (size_t)crowd.count);
	ct_memory_open(&member->peer, &member->memory,
		       (size_t)crowd.count * 2 * WINDOW * LONGEST,
		       FI_SEND | FI_RECV);
	data = member->memory.data;
	for (int i = 0; i < crowd.count; i++) {
		struct other *other = &member->others[i];

		other->place = i;
		other->addr = ct_insert(&member->peer, cards[i].name);
		for (int j = 0; j < WINDOW; j++) {
			other->rx[j].receives = true;
			other->rx[j].data = data;
			other->tx[j].data = data + LONGEST;
			data += 2 * LONGEST;
		}
	}
}

static bool told(int fd)
{
	char word;

	return recv(fd, &word, 1, MSG_DONTWAIT) == 1;
}

static void run_member(int fd)
{
	static struct member member;
	struct other *victim = &member.others[crowd.victim];

	join(&member, fd);
	BUSY_UNTIL(&member, all_have_sent(&member, ENOUGH));
	ct_tell(fd, "r", 1);
	/* No member progresses beyond this. */
	BUSY_UNTIL(&member, victim->gone && crowd.self != crowd.victim);
	take_back_receives(&member, victim);
	BUSY_UNTIL(&member, nothing_open(victim));
	for EACH(other, &member)
		other->since = other->received;
	BUSY_UNTIL(&member, all_have_sent(&member, ENOUGH));
	ct_tell(fd, "d", 1);
	BUSY_UNTIL(&member, told(fd));
	member.leaves = true;
	BUSY_UNTIL(&member, heard_all(&member));
	for EACH(other, &member)
		take_back_receives(&member, other);
	BUSY_UNTIL(&member, nothing_left(&member));
	ct_memory_close(&member.memory);
	ct_close_peer(&member.peer);
}

/* Names of files in /dev/shm. */
struct names {
	char list[NAMES][256];
	int count;
};

static void note(struct names *names, const char *path)
{
	static const char folder[] = "/dev/shm/";
	char *end;

	if (strncmp(path, folder, strlen(folder)) || names->count == NAMES)
		return;
	snprintf(names->list[names->count], sizeof(names->list[0]), "%s", path);
	end = strpbrk(names->list[names->count], " \n");
	if (end)
		*end = '\0';
	names->count++;
}

/* Those that a process has mapped. */
static void note_mapped(struct names *names, pid_t pid)
{
	char path[64], line[512];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		const char *file = strchr(line, '/');

		if (file)
			note(names, file);
	}
	fclose(maps);
}

/* Whether a file is called after a process. */
static bool called_after(const char *name, pid_t pid)
{
	char number[16];
	size_t len = (size_t)snprintf(number, sizeof(number), "%d", pid);

	for (const char *at = name; (at = strstr(at, number)); at++)
		if ((at == name || !isdigit((unsigned char)at[-1])) &&
		    !isdigit((unsigned char)at[len]))
			return true;
	return false;
}

static void nothing_is_left(const struct names *names,
			    const struct ct_child *children)
{
	DIR *folder = opendir("/dev/shm");
	struct dirent *entry;

	for (int i = 0; i < names->count; i++)
		REQUIRE(access(names->list[i], F_OK));
	while (folder && (entry = readdir(folder)))
		for (int i = 0; i < crowd.count; i++)
			REQUIRE(!called_after(entry->d_name, children[i].pid));
	if (folder)
		closedir(folder);
}

static void hear_word(const struct ct_child *child, char word)
{
	char heard;

	ct_hear(child->fd, &heard, 1);
	REQUIRE(heard == word);
}

static void run_one(uint64_t seed)
{
	struct ct_random chance = { .state = seed };
	struct ct_child children[MOST];
	struct ct_card cards[MOST];
	static struct names names;
	useconds_t pause;

	crowd.victim = (int)ct_below(&chance, (uint64_t)crowd.count);
	pause = (useconds_t)ct_below(&chance, 5000);
	for (crowd.self = 0; crowd.self < crowd.count; crowd.self++)
		children[crowd.self] = ct_spawn(run_member);
	for (int i = 0; i < crowd.count; i++)
		ct_begin(&children[i]);
	for (int i = 0; i < crowd.count; i++)
		ct_hear(children[i].fd, &cards[i], sizeof(cards[i]));
	for (int i = 0; i < crowd.count; i++)
		ct_tell(children[i].fd, cards,
			sizeof(cards[0]) * (size_t)crowd.count);
	for (int i = 0; i < crowd.count; i++)
		hear_word(&children[i], 'r');
	names.count = 0;
	for (int i = 0; i < crowd.count; i++)
		note_mapped(&names, children[i].pid);
	usleep(pause);
	ct_kill(&children[crowd.victim]);
	for (int i = 0; i < crowd.count; i++)
		if (i != crowd.victim)
			hear_word(&children[i], 'd');
	for (int i = 0; i < crowd.count; i++)
		if (i != crowd.victim)
			ct_tell(children[i].fd, "s", 1);
	for (int i = 0; i < crowd.count; i++)
		if (i != crowd.victim)
			ct_join(&children[i]);
	nothing_is_left(&names, children);
}

static void run(int count)
{
	const char *seed = getenv("CT_SEED"), *runs = getenv("CT_RUNS");
	int rounds = runs ? atoi(runs) : 3;

	crowd.count = count;
	if (seed) {
		run_one(strtoull(seed, NULL, 0));
		return;
	}
	for (int i = 1; i <= rounds; i++) {
		run_one((uint64_t)i);
		if (runs)
			CHECK(true, "round-%d", i);
	}
}

static void one_of_two(void) { run(2); }
static void one_of_eight(void) { run(MOST); }

static const struct ct_test tests[] = {
	{ "one-of-two", one_of_two, CT_RDM | CT_SLOW },
	{ "one-of-eight", one_of_eight, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
