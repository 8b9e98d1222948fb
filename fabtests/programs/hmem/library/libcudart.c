/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Stands in for libcudart.so, which upstream's test programs use, over the
 * stand-in of libcuda.so.1 (see support/device.h). Its copies are made at once, on a
 * stream of their own: they wait for nothing.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OF_HOST_TO_DEVICE = 1, OF_DEVICE_TO_HOST = 2 };
enum { SUCCESS = 0, INVALID_VALUE = 1 };

typedef uint64_t CUdeviceptr;

static void *driver(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

static int use(int device)
{
	int (*init)(unsigned), (*retain)(void **, int), (*make_current)(void *);
	void *context;

	*(void **)&init = driver("cuInit");
	*(void **)&retain = driver("cuDevicePrimaryCtxRetain");
	*(void **)&make_current = driver("cuCtxSetCurrent");
	if (!init || !retain || !make_current)
		return INVALID_VALUE;
	if (init(0) || retain(&context, device))
		return INVALID_VALUE;
	return make_current(context);
}

static __thread int is_in_use;

static int begin(void)
{
	if (!is_in_use && !use(0))
		is_in_use = 1;
	return is_in_use ? SUCCESS : INVALID_VALUE;
}

EXPORT int cudaSetDevice(int device)
{
	int status = use(device);

	is_in_use = !status;
	return status;
}

EXPORT int cudaMalloc(void **memory, size_t len)
{
	int (*alloc)(CUdeviceptr *, size_t);
	CUdeviceptr address;
	int status;

	*(void **)&alloc = driver("cuMemAlloc_v2");
	status = begin();
	if (!status)
		status = alloc(&address, len);
	if (!status)
		*memory = (void *)(uintptr_t)address;
	return status;
}

EXPORT int cudaFree(void *memory)
{
	int (*release)(CUdeviceptr);

	*(void **)&release = driver("cuMemFree_v2");
	return begin() ? INVALID_VALUE : release((uintptr_t)memory);
}

EXPORT int cudaMallocHost(void **memory, size_t len)
{
	*memory = calloc(1, len);
	return *memory ? SUCCESS : INVALID_VALUE;
}

EXPORT int cudaFreeHost(void *memory)
{
	free(memory);
	return SUCCESS;
}

EXPORT int cudaMemcpy(void *to, const void *from, size_t len, int kind)
{
	void (*poke)(CUdeviceptr, const void *, size_t), (*peek)(CUdeviceptr, void *, size_t);

	*(void **)&poke = driver("standin_poke");
	*(void **)&peek = driver("standin_peek");
	switch (kind) {
	case OF_HOST_TO_DEVICE:
		poke((uintptr_t)to, from, len);
		return SUCCESS;
	case OF_DEVICE_TO_HOST:
		peek((uintptr_t)from, to, len);
		return SUCCESS;
	default:
		return INVALID_VALUE;
	}
}

EXPORT int cudaMemset(void *memory, int value, size_t len)
{
	unsigned char bytes[1 << 16], *to = memory;

	memset(bytes, value, sizeof(bytes));
	while (len) {
		size_t part = len < sizeof(bytes) ? len : sizeof(bytes);

		cudaMemcpy(to, bytes, part, OF_HOST_TO_DEVICE);
		to += part;
		len -= part;
	}
	return SUCCESS;
}

EXPORT const char *cudaGetErrorName(int error)
{
	return error ? "an error" : "no error";
}

EXPORT const char *cudaGetErrorString(int error)
{
	return cudaGetErrorName(error);
}
