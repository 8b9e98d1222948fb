/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "late.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "wait.h"

struct ct_late {
	struct ct_peer *from;
	struct fi_context2 *context;
	pthread_t thread;
	struct ct_driver *driver;
};

static void *send_late(void *arg)
{
	struct ct_late *late = arg;

	usleep(50000);
	while (fi_send(late->from->ep, NULL, 0, NULL, late->from->to,
		       late->context) == -FI_EAGAIN)
		usleep(100);
	return NULL;
}

struct ct_late *ct_late_start(struct ct_peer *from, struct fi_context2 *context)
{
	struct ct_late *late = calloc(1, sizeof(*late));

	REQUIRE(late);
	late->from = from;
	late->context = context;
	late->driver = ct_driver_start(from);
	REQUIRE(!pthread_create(&late->thread, NULL, send_late, late));
	return late;
}

void ct_late_stop(struct ct_late *late)
{
	pthread_join(late->thread, NULL);
	ct_driver_stop(late->driver);
	free(late);
}
