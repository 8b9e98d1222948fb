/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		ct_fail(__FILE__, __LINE__, "the device's library has no %s", name);
	return found;
}

static int (*make_current)(void *context);
static int (*retain)(void **context, int device);

static int use(int device)
{
	void *context;
	int status = retain(&context, device);

	return status ? status : make_current(context);
}

/* Loads a library that is beside the program. */
static void *load(const char *name)
{
	char path[PATH_MAX + 32];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
	void *library;

	REQUIRE(len > 0);
	path[len] = 0;
	strcpy(strrchr(path, '/') + 1, name);
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		ct_fail(__FILE__, __LINE__, "%s", dlerror());
	return library;
}

void *ct_device_as(const char *library)
{
	ct_device();
	return load(library);
}

const struct ct_device *ct_device(void)
{
	static struct ct_device device;
	void *library;
	int (*init)(unsigned);

	if (device.poke)
		return &device;
	/* By its name inside it is the one that libfabric finds. */
	library = load("hmem-libcuda.so");
	*(void **)&init = symbol(library, "cuInit");
	*(void **)&make_current = symbol(library, "cuCtxSetCurrent");
	*(void **)&retain = symbol(library, "cuDevicePrimaryCtxRetain");
	*(void **)&device.peek = symbol(library, "standin_peek");
	*(void **)&device.kernel = symbol(library, "standin_kernel");
	*(void **)&device.delay = symbol(library, "standin_delay");
	*(void **)&device.hold = symbol(library, "standin_hold");
	*(void **)&device.fail = symbol(library, "standin_fail");
	*(void **)&device.reset = symbol(library, "standin_reset");
	*(void **)&device.renew = symbol(library, "standin_renew");
	*(void **)&device.waits = symbol(library, "standin_waits");
	*(void **)&device.refuse_sharing = symbol(library, "standin_refuse_sharing");
	*(void **)&device.forge = symbol(library, "standin_forge");
	*(void **)&device.opened = symbol(library, "standin_opened");
	*(void **)&device.closed = symbol(library, "standin_closed");
	*(void **)&device.within = symbol(library, "standin_within");
	*(void **)&device.copies = symbol(library, "standin_copies");
	*(void **)&device.synchronous = symbol(library, "standin_synchronous");
	*(void **)&device.alloc = symbol(library, "cuMemAlloc_v2");
	*(void **)&device.free = symbol(library, "cuMemFree_v2");
	device.use = use;
	*(void **)&device.poke = symbol(library, "standin_poke");
	init(0);
	use(0);
	return &device;
}
