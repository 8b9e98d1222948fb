/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Stands in for libhsa-runtime64.so.1, over the device of the stand-in of libcuda.so.1
 * (see support/device.h): its memory is that of the GPUs here, and its streams copy.
 * Memory of the host has to be locked first, and has another address for the devices.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, FAILED = 0x1000, INVALID_ARGUMENT = 0x1001 };
enum { DEVICES = 2, HOST = 100, GPU = 200, DEVICE_INFO = 17, LOCKED = 1024 };
enum { NODE = 0xa004, BDF = 0xa006, DOMAIN = 0xa00f, HANDLE = 32, WATCHED = 256 };
/* What is added to addresses of the host: nothing is there. */
#define SHIFT (1ull << 62)

struct agent {
	uint64_t handle;
};

struct signal {
	void *event, *stream;
	int64_t value;
	struct signal *next;
};

struct pointer_info {
	uint32_t size, type;
	void *agent_base, *host_base;
	size_t len;
	void *user_data;
	struct agent owner;
};

static struct { uintptr_t at; size_t len; } locked[LOCKED];
static unsigned locked_count;
/* Those that are done, with their streams: each of these is a thread. */
static struct signal *idle;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

static int enter(int device)
{
	void *context;

	return CALL(cuDevicePrimaryCtxRetain, &context, device) ||
	       CALL(cuCtxPushCurrent_v2, context);
}

EXPORT uint32_t hsa_init(void)
{
	return driver("cuInit") && !CALL(cuInit, 0) ? SUCCESS : FAILED;
}

EXPORT uint32_t hsa_iterate_agents(uint32_t (*call)(struct agent, void *), void *data)
{
	uint32_t status = call((struct agent) { HOST }, data);

	for (int i = 0; i < DEVICES && !status; i++)
		status = call((struct agent) { GPU + i }, data);
	return status;
}

EXPORT uint32_t hsa_agent_get_info(struct agent agent, uint32_t attribute, void *value)
{
	switch (attribute) {
	case DEVICE_INFO:
		*(uint32_t *)value = agent.handle >= GPU;
		return SUCCESS;
	case DOMAIN:
	case NODE:
		*(uint32_t *)value = 1;
		return SUCCESS;
	case BDF:
		*(uint32_t *)value = 256 * (uint32_t)agent.handle;
		return SUCCESS;
	default:
		return INVALID_ARGUMENT;
	}
}

EXPORT uint32_t hsa_amd_pointer_info(const void *address, struct pointer_info *info,
				     void *(*alloc)(size_t), uint32_t *count, struct agent **agents)
{
	int device = device_of((uintptr_t)address);

	(void)alloc;
	(void)count;
	(void)agents;
	if (info->size < sizeof(*info))
		return INVALID_ARGUMENT;
	info->type = device >= 0;
	info->agent_base = NULL;
	info->len = 0;
	if (device >= 0)
		CALL(cuMemGetAddressRange_v2, (uint64_t *)&info->agent_base, &info->len,
		     (uint64_t)(uintptr_t)address);
	info->owner.handle = GPU + (uint64_t)device;
	return SUCCESS;
}

EXPORT uint32_t hsa_amd_memory_lock(void *memory, size_t len, const struct agent *agents, int count,
				    void **address)
{
	(void)agents;
	if (count != 1 || locked_count == LOCKED)
		return INVALID_ARGUMENT;
	locked[locked_count].at = (uintptr_t)memory;
	locked[locked_count++].len = len;
	*address = (void *)((uintptr_t)memory + SHIFT);
	return SUCCESS;
}

EXPORT uint32_t hsa_signal_create(int64_t value, uint32_t count, const struct agent *agents,
				  struct signal **signal)
{
	(void)count;
	(void)agents;
	pthread_mutex_lock(&lock);
	*signal = idle;
	if (idle)
		idle = idle->next;
	pthread_mutex_unlock(&lock);
	if (!*signal)
		*signal = calloc(1, sizeof(**signal));
	(*signal)->value = value;
	return SUCCESS;
}

EXPORT uint32_t hsa_signal_destroy(struct signal *signal)
{
	if (signal->event && !CALL(cuEventQuery, signal->event)) {
		pthread_mutex_lock(&lock);
		signal->next = idle;
		idle = signal;
		pthread_mutex_unlock(&lock);
	}
	return SUCCESS;
}

EXPORT int64_t hsa_signal_load_scacquire(struct signal *signal)
{
	int status = CALL(cuEventQuery, signal->event);

	return status == 600 ? 1 : status ? -1 : 0;
}

/* Where locked memory of the host really is; NULL if it is not locked. */
static void *real(uintptr_t address, size_t len)
{
	uintptr_t at = address - SHIFT;

	for (unsigned i = 0; i < locked_count; i++)
		if (at >= locked[i].at && at + len <= locked[i].at + locked[i].len)
			return (void *)at;
	return NULL;
}

EXPORT uint32_t hsa_amd_memory_async_copy(void *to, struct agent to_agent, const void *from,
					  struct agent from_agent, size_t len, uint32_t count,
					  const struct signal **before, struct signal *signal)
{
	bool to_host = to_agent.handle == HOST, from_host = from_agent.handle == HOST;
	void *source = from_host ? real((uintptr_t)from, len) : (void *)from;
	void *target = to_host ? real((uintptr_t)to, len) : to;
	void *popped;
	int status;

	(void)before;
	if (count || !source || !target || (to_host && from_host) ||
	    enter(to_host ? (int)(from_agent.handle - GPU) : (int)(to_agent.handle - GPU)))
		return INVALID_ARGUMENT;
	status = !signal->event && (CALL(cuStreamCreate, &signal->stream, 1) ||
				    CALL(cuEventCreate, &signal->event, 2));
	if (!status && to_host)
		status = CALL(cuMemcpyDtoHAsync_v2, target, (uint64_t)(uintptr_t)source, len, signal->stream);
	else if (!status && from_host)
		status = CALL(cuMemcpyHtoDAsync_v2, (uint64_t)(uintptr_t)target, source, len, signal->stream);
	else if (!status)
		status = CALL(cuMemcpyDtoDAsync_v2, (uint64_t)(uintptr_t)target,
			      (uint64_t)(uintptr_t)source, len, signal->stream);
	if (!status)
		status = CALL(cuEventRecord, signal->event, signal->stream);
	CALL(cuCtxPopCurrent_v2, &popped);
	return status ? FAILED : SUCCESS;
}

/* Who hears of the end of an allocation. */
static struct {
	uint64_t base;
	void (*call)(void *, void *);
	void *data;
} watched[WATCHED];

static void freed(uint64_t base)
{
	for (unsigned i = 0; i < WATCHED; i++) {
		void (*call)(void *, void *) = NULL;

		pthread_mutex_lock(&lock);
		if (watched[i].base == base) {
			call = watched[i].call;
			watched[i].base = 0;
		}
		pthread_mutex_unlock(&lock);
		if (call)
			call((void *)(uintptr_t)base, watched[i].data);
	}
}

EXPORT uint32_t hsa_amd_register_deallocation_callback(void *base, void (*call)(void *, void *),
						       void *data)
{
	uint32_t status = FAILED;

	CALL(standin_on_free, freed);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < WATCHED && status; i++) {
		if (watched[i].base)
			continue;
		watched[i].base = (uint64_t)(uintptr_t)base;
		watched[i].call = call;
		watched[i].data = data;
		status = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT uint32_t hsa_amd_ipc_memory_create(void *base, size_t len, void *handle)
{
	struct { char bytes[64]; } whole;
	uint64_t start;
	size_t all;

	if (CALL(cuMemGetAddressRange_v2, &start, &all, (uint64_t)(uintptr_t)base) ||
	    start != (uintptr_t)base || all != len ||
	    CALL(cuIpcGetMemHandle, &whole, (uint64_t)(uintptr_t)base))
		return INVALID_ARGUMENT;
	memcpy(handle, &whole, HANDLE);
	return SUCCESS;
}

EXPORT uint32_t hsa_amd_ipc_memory_attach(const void *handle, size_t len, uint32_t count,
					  const struct agent *agents, void **address)
{
	struct whole { char bytes[64]; } whole = { { 0 } };
	int (*open)(uint64_t *, struct whole, unsigned);
	uint64_t mapped, base;
	void *popped;
	size_t all;
	int status;

	memcpy(&whole, handle, HANDLE);
	*(void **)&open = driver("cuIpcOpenMemHandle_v2");
	if (count != 1 || enter((int)(agents->handle - GPU)))
		return INVALID_ARGUMENT;
	status = open(&mapped, whole, 1);
	CALL(cuCtxPopCurrent_v2, &popped);
	if (status)
		return INVALID_ARGUMENT;
	if (CALL(cuMemGetAddressRange_v2, &base, &all, mapped) || all != len) {
		CALL(cuIpcCloseMemHandle, mapped);
		return INVALID_ARGUMENT;
	}
	*address = (void *)(uintptr_t)mapped;
	return SUCCESS;
}

EXPORT uint32_t hsa_amd_ipc_memory_detach(void *address)
{
	return CALL(cuIpcCloseMemHandle, (uint64_t)(uintptr_t)address) ? INVALID_ARGUMENT : SUCCESS;
}
