/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The first calls of a process, from many threads simultaneously: fi_getinfo
 * without and with hints, and the other functions that need no object. The
 * results must be those that a single thread gets afterwards.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "check.h"
#include "peer.h"

enum { THREADS = 32, ROUNDS = 5, TEXT = 1 << 20 };

static pthread_barrier_t start;
static struct fi_provider self = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(1, 5),
	.name = "ctfirst",
};

/* The results by provider, domain, type of endpoint and capabilities; addresses
 * are left out, which a socket may get a new port for. */
static char *answer(bool with_hints)
{
	struct ct_spec spec = { 0 };
	struct fi_info *hints = with_hints ? ct_hints(&spec) : NULL;
	struct fi_info *info = NULL;
	char *text = calloc(1, TEXT);
	size_t len = 0;
	int ret = fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info);

	REQUIRE(text);
	len += (size_t)snprintf(text, TEXT, "%d\n", ret);
	for (struct fi_info *at = info; at && len < TEXT; at = at->next)
		len += (size_t)snprintf(
			text + len, TEXT - len, "%s %s %d %#llx %#llx %d\n",
			at->fabric_attr->prov_name, at->domain_attr->name,
			(int)at->ep_attr->type, (unsigned long long)at->caps,
			(unsigned long long)at->mode, (int)at->addr_format);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return text;
}

static void *run(void *arg)
{
	int me = (int)(intptr_t)arg;
	struct fi_param *params;
	int count, value = FI_EP_RDM;
	char name[32];

	pthread_barrier_wait(&start);
	switch (me % 8) {
	case 0:
		OK(fi_getparams(&params, &count));
		fi_freeparams(params);
		break;
	case 1:
		FI_WARN(&self, FI_LOG_CORE, "thread %d\n", me);
		break;
	case 2:
		snprintf(name, sizeof(name), "number%d", me);
		OK(fi_param_define(&self, name, FI_PARAM_INT, "a number"));
		break;
	case 3:
		REQUIRE(fi_tostr(&value, FI_TYPE_EP_TYPE));
		REQUIRE(fi_strerror(FI_EAVAIL));
		break;
	}
	return answer(me & 1);
}

/* A process of its own for each round would be its own first call only once:
 * each test is one, and its first round is the first. */
static void at_once(void)
{
	pthread_t threads[THREADS];
	char *texts[THREADS], *alone[2];

	for (int round = 0; round < ROUNDS; round++) {
		REQUIRE(!pthread_barrier_init(&start, NULL, THREADS));
		for (int i = 0; i < THREADS; i++)
			REQUIRE(!pthread_create(&threads[i], NULL, run,
						(void *)(intptr_t)i));
		for (int i = 0; i < THREADS; i++)
			REQUIRE(!pthread_join(threads[i], (void **)&texts[i]));
		pthread_barrier_destroy(&start);
		for (int i = 0; i < 2; i++)
			alone[i] = answer(i);
		for (int i = 0; i < THREADS; i++) {
			if (strcmp(texts[i], alone[i & 1]))
				ct_fail(__FILE__, __LINE__,
					"thread %d of round %d got\n%s\ninstead of\n%s",
					i, round, texts[i], alone[i & 1]);
			free(texts[i]);
		}
		free(alone[0]);
		free(alone[1]);
	}
}

static void plain(void) { at_once(); }

static void chosen(void)
{
	setenv("FI_PROVIDER", ct_opt.provider ? ct_opt.provider : "tcp", 1);
	at_once();
}

static const struct ct_test tests[] = {
	{ "plain", plain, CT_BOTH },
	{ "provider-chosen", chosen, CT_BOTH },
};

CT_MAIN(tests)
