/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Stands in for libgdrapi.so.2, over the device of the stand-in of libcuda.so.1 (see
 * support/device.h): a mapping is at the addresses of the memory, which no processor
 * reaches but through the functions here.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { PAGE = 65536, PINS = 256, FAILED = 22 };

struct pin {
	unsigned long number;
};

static struct { uintptr_t start; size_t len; bool is_mapped; } pins[PINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned copies, pinned;
static bool refuses;

static void *driver(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

EXPORT void *gdr_open(void)
{
	return pins;
}

EXPORT int gdr_pin_buffer(void *gdr, unsigned long address, size_t len, uint64_t token, uint32_t space,
			  struct pin *pin)
{
	int status = FAILED;

	if (gdr != pins || address % PAGE || len % PAGE || token || space || refuses)
		return FAILED;
	pthread_mutex_lock(&lock);
	for (unsigned long i = 0; i < PINS && status; i++) {
		if (pins[i].len)
			continue;
		pins[i].start = address;
		pins[i].len = len;
		pins[i].is_mapped = false;
		pin->number = i;
		pinned++;
		status = 0;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT int gdr_unpin_buffer(void *gdr, struct pin pin)
{
	if (gdr != pins || !pins[pin.number].len)
		return FAILED;
	pthread_mutex_lock(&lock);
	pins[pin.number].len = 0;
	pinned--;
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int gdr_map(void *gdr, struct pin pin, void **mapped, size_t len)
{
	if (gdr != pins || pins[pin.number].len != len)
		return FAILED;
	pins[pin.number].is_mapped = true;
	*mapped = (void *)pins[pin.number].start;
	return 0;
}

EXPORT int gdr_unmap(void *gdr, struct pin pin, void *mapped, size_t len)
{
	if (gdr != pins || pins[pin.number].len != len || pins[pin.number].start != (uintptr_t)mapped)
		return FAILED;
	pins[pin.number].is_mapped = false;
	return 0;
}

static bool may_copy(struct pin pin, uintptr_t at, size_t len)
{
	__atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
	return pins[pin.number].is_mapped && at >= pins[pin.number].start &&
	       at + len <= pins[pin.number].start + pins[pin.number].len;
}

EXPORT int gdr_copy_to_mapping(struct pin pin, void *to, const void *from, size_t len)
{
	void (*poke)(uint64_t, const void *, size_t);

	*(void **)&poke = driver("standin_poke");
	if (!may_copy(pin, (uintptr_t)to, len))
		return FAILED;
	poke((uintptr_t)to, from, len);
	return 0;
}

EXPORT int gdr_copy_from_mapping(struct pin pin, void *to, const void *from, size_t len)
{
	void (*peek)(uint64_t, void *, size_t);

	*(void **)&peek = driver("standin_peek");
	if (!may_copy(pin, (uintptr_t)from, len))
		return FAILED;
	peek((uintptr_t)from, to, len);
	return 0;
}

/* What only the stand-in has. */
EXPORT unsigned standin_gdr_copies(void)
{
	return copies;
}

EXPORT unsigned standin_gdr_pinned(void)
{
	return pinned;
}

EXPORT void standin_gdr_refuse(bool refuse)
{
	refuses = refuse;
}
