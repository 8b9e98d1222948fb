/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "user.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fi_errno.h>

#define PATIENCE 60.0
#define LONGEST 100000

void give_up(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

/* A call that has to return 0. */
#define OK(call)							\
	do {								\
		long ret_ = (long)(call);				\
									\
		if (ret_)						\
			give_up("%s:%d: %s: %ld", __FILE__, __LINE__,	\
				#call, ret_);				\
	} while (0)

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A function's address as a pointer to a function. */
#define TAKE(field, name)						\
	do {								\
		void *address_ = dlsym(handle, name);			\
									\
		if (!address_)						\
			give_up("no %s: %s", name, dlerror());		\
		memcpy(&library->field, &address_, sizeof(address_));	\
	} while (0)

void take_library(struct library *library, void *handle)
{
	if (!handle)
		give_up("not loaded: %s", dlerror());
	library->handle = handle;
	TAKE(getinfo, "fi_getinfo");
	TAKE(freeinfo, "fi_freeinfo");
	TAKE(dupinfo, "fi_dupinfo");
	TAKE(fabric, "fi_fabric");
}

void open_user(struct user *user, const struct library *library,
	       const char *provider)
{
	bool has_address = strcmp(provider, "shm") != 0;
	struct fi_info *hints = library->dupinfo(NULL);
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE,
	};
	struct fi_av_attr av = { .type = FI_AV_UNSPEC };

	memset(user, 0, sizeof(*user));
	user->library = library;
	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->fabric_attr->prov_name = strdup(provider);
	OK(library->getinfo(FI_VERSION(1, 18), has_address ? "127.0.0.1" : NULL,
			    NULL, has_address ? FI_SOURCE : 0, hints,
			    &user->info));
	library->freeinfo(hints);
	OK(library->fabric(user->info->fabric_attr, &user->fabric, NULL));
	OK(fi_domain(user->fabric, user->info, &user->domain, NULL));
	OK(fi_cq_open(user->domain, &cq, &user->cq, NULL));
	OK(fi_av_open(user->domain, &av, &user->av, NULL));
	OK(fi_endpoint(user->domain, user->info, &user->ep, NULL));
	OK(fi_ep_bind(user->ep, &user->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(user->ep, &user->av->fid, 0));
	OK(fi_enable(user->ep));
	user->name_len = sizeof(user->name);
	OK(fi_getname(&user->ep->fid, user->name, &user->name_len));
}

void close_user(struct user *user)
{
	OK(fi_close(&user->ep->fid));
	OK(fi_close(&user->av->fid));
	OK(fi_close(&user->cq->fid));
	OK(fi_close(&user->domain->fid));
	OK(fi_close(&user->fabric->fid));
	user->library->freeinfo(user->info);
}

/* Reads completions of both; returns how many there were. */
static unsigned drive(struct user *a, struct user *b)
{
	struct fi_cq_entry entry;
	unsigned done = 0;

	for (int i = 0; i < 2; i++) {
		struct user *of = i ? a : b;
		ssize_t got = fi_cq_read(of->cq, &entry, 1);

		if (got > 0)
			done++;
		else if (got != -FI_EAGAIN)
			give_up("fi_cq_read: %zd", got);
	}
	return done;
}

static void send_one(struct user *from, struct user *to, fi_addr_t address,
		     size_t len)
{
	static unsigned char out[LONGEST], in[LONGEST];
	static struct fi_context2 sending, receiving;
	double end = now() + PATIENCE;
	unsigned done = 0;
	ssize_t ret;

	for (size_t i = 0; i < len; i++) {
		out[i] = (unsigned char)(i * 7 + len);
		in[i] = 0;
	}
	OK(fi_recv(to->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &receiving));
	while ((ret = fi_send(from->ep, out, len, NULL, address, &sending)) ==
	       -FI_EAGAIN) {
		done += drive(from, to);
		if (now() > end)
			give_up("nothing can be sent");
	}
	OK(ret);
	while (done < 2) {
		done += drive(from, to);
		if (now() > end)
			give_up("%zu bytes never arrived", len);
	}
	if (memcmp(in, out, len))
		give_up("other data arrived");
}

void exchange(struct user *a, struct user *b)
{
	static const size_t lengths[] = { 0, 1, 100, 5000, LONGEST };
	fi_addr_t of_a, of_b;

	if (fi_av_insert(a->av, b->name, 1, &of_b, 0, NULL) != 1 ||
	    fi_av_insert(b->av, a->name, 1, &of_a, 0, NULL) != 1)
		give_up("an address is refused");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		send_one(a, b, of_b, lengths[i]);
		send_one(b, a, of_a, lengths[i]);
	}
}

void use_library(const struct library *library, const char *provider)
{
	struct user a, b;

	open_user(&a, library, provider);
	open_user(&b, library, provider);
	exchange(&a, &b);
	close_user(&a);
	close_user(&b);
}

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int count = 0;

	if (!dir)
		give_up("no %s", folder);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

int descriptors(void)
{
	return entries("/proc/self/fd");
}

int threads(void)
{
	return entries("/proc/self/task");
}

long resident_kilobytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (!file || fscanf(file, "%*d %ld", &pages) != 1)
		give_up("no /proc/self/statm");
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

bool is_mapped(const char *path)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char *real = realpath(path, NULL), line[5000];
	bool found = false;

	if (!file || !real)
		give_up("no %s", path);
	while (fgets(line, sizeof(line), file))
		found |= strstr(line, real) != NULL;
	fclose(file);
	free(real);
	return found;
}
