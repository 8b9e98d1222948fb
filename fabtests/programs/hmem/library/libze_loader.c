/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Stands in for libze_loader.so.1, over the device of the stand-in of libcuda.so.1
 * (see support/device.h): its memory is that of the GPUs here, and its streams copy.
 * Only memory of the host that was allocated here can be copied from or to.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_READY = 1, DEVICE_LOST = 0x70000001, INVALID_ARGUMENT = 0x78000004 };
enum { DEVICES = 2, ALLOCATED = 1024 };

struct properties {
	uint32_t kind;
	void *next;
	uint32_t memory;
	uint64_t id, page;
};

struct event {
	void *event;
};

static char the_driver, the_context, the_devices[DEVICES];
static struct { uintptr_t at; size_t len; } allocated[ALLOCATED];
static unsigned allocated_count;

static void *driver(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

#define CALL(name, ...) (((int (*)())driver(#name))(__VA_ARGS__))

/* The device of an address; -1: none. */
static int device_of(uint64_t address)
{
	unsigned asked[] = { 2, 9 };
	unsigned type = 0;
	int ordinal = -1;
	void *answers[] = { &type, &ordinal };

	CALL(cuPointerGetAttributes, 2, asked, answers, address);
	return type == 2 ? ordinal : -1;
}

EXPORT uint32_t zeInit(uint32_t flags)
{
	return flags == 1 && driver("cuInit") && !CALL(cuInit, 0) ? SUCCESS : DEVICE_LOST;
}

EXPORT uint32_t zeDriverGet(uint32_t *count, void **drivers)
{
	if (drivers && *count)
		*drivers = &the_driver;
	*count = 1;
	return SUCCESS;
}

EXPORT uint32_t zeDeviceGet(void *of, uint32_t *count, void **devices)
{
	if (of != &the_driver)
		return INVALID_ARGUMENT;
	for (unsigned i = 0; devices && i < *count && i < DEVICES; i++)
		devices[i] = &the_devices[i];
	*count = DEVICES;
	return SUCCESS;
}

EXPORT uint32_t zeContextCreate(void *of, const uint32_t *kind, void **context)
{
	*context = &the_context;
	return of == &the_driver && *kind == 0xd ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT uint32_t zeMemGetAllocProperties(void *context, const void *address,
					struct properties *properties, void **device)
{
	int found = device_of((uintptr_t)address);

	if (context != &the_context || properties->kind != 0x17)
		return INVALID_ARGUMENT;
	properties->memory = found < 0 ? 0 : 2;
	*device = found < 0 ? NULL : &the_devices[found];
	return SUCCESS;
}

EXPORT uint32_t zeMemAllocHost(void *context, const uint32_t *kind, size_t len, size_t align,
			       void **memory)
{
	if (context != &the_context || *kind != 0x16 || allocated_count == ALLOCATED ||
	    posix_memalign(memory, align, len))
		return INVALID_ARGUMENT;
	allocated[allocated_count].at = (uintptr_t)*memory;
	allocated[allocated_count++].len = len;
	return SUCCESS;
}

EXPORT uint32_t zeCommandListCreateImmediate(void *context, void *device, const uint32_t *kind,
					     void **list)
{
	long at = (char *)device - the_devices;
	void *current, *popped;
	int status;

	if (context != &the_context || at < 0 || at >= DEVICES || *kind != 0xe ||
	    CALL(cuDevicePrimaryCtxRetain, &current, (int)at) ||
	    CALL(cuCtxPushCurrent_v2, current))
		return INVALID_ARGUMENT;
	status = CALL(cuStreamCreate, list, 1);
	CALL(cuCtxPopCurrent_v2, &popped);
	return status ? DEVICE_LOST : SUCCESS;
}

EXPORT uint32_t zeEventPoolCreate(void *context, const uint32_t *kind, uint32_t count,
				  void **devices, void **pool)
{
	*pool = &the_context;
	return context == &the_context && *kind == 0x10 && count == 1 && devices ?
	       SUCCESS : INVALID_ARGUMENT;
}

EXPORT uint32_t zeEventCreate(void *pool, const uint32_t *kind, struct event **event)
{
	(void)pool;
	*event = calloc(1, sizeof(**event));
	return *kind == 0x11 ? SUCCESS : INVALID_ARGUMENT;
}

/* Whether the bytes can be copied: the device's, or the host's that were allocated here. */
static int is_known(uintptr_t at, size_t len)
{
	if (device_of(at) >= 0)
		return 1;
	for (unsigned i = 0; i < allocated_count; i++)
		if (at >= allocated[i].at && at + len <= allocated[i].at + allocated[i].len)
			return 1;
	return 0;
}

EXPORT uint32_t zeCommandListAppendMemoryCopy(void *list, void *to, const void *from, size_t len,
					      struct event *event, uint32_t count, void **before)
{
	uint64_t source = (uintptr_t)from, target = (uintptr_t)to;
	int at = device_of(source), status;
	void *context, *popped;

	(void)before;
	if (count || !is_known(source, len) || !is_known(target, len) || event->event)
		return INVALID_ARGUMENT;
	if (at < 0)
		at = device_of(target);
	if (at < 0 || CALL(cuDevicePrimaryCtxRetain, &context, at) ||
	    CALL(cuCtxPushCurrent_v2, context))
		return INVALID_ARGUMENT;
	if (device_of(target) < 0)
		status = CALL(cuMemcpyDtoHAsync_v2, to, source, len, list);
	else if (device_of(source) < 0)
		status = CALL(cuMemcpyHtoDAsync_v2, target, from, len, list);
	else
		status = CALL(cuMemcpyDtoDAsync_v2, target, source, len, list);
	if (!status)
		status = CALL(cuEventCreate, &event->event, 2) ||
			 CALL(cuEventRecord, event->event, list);
	CALL(cuCtxPopCurrent_v2, &popped);
	return status ? DEVICE_LOST : SUCCESS;
}

EXPORT uint32_t zeEventQueryStatus(struct event *event)
{
	int status = event->event ? CALL(cuEventQuery, event->event) : 600;

	return status == 600 ? NOT_READY : status ? DEVICE_LOST : SUCCESS;
}

EXPORT uint32_t zeEventHostReset(struct event *event)
{
	free(event->event);
	event->event = NULL;
	return SUCCESS;
}
