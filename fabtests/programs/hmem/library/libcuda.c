/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Stands in for libcuda.so.1: see support/device.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
	INVALID_CONTEXT = 201, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
	NOT_SUPPORTED = 801,
};

enum { DEVICES = 2, ALLOCATIONS = 1024, NON_BLOCKING = 1 };

typedef int CUresult;
typedef uint64_t CUdeviceptr;

/* One allocation: at `address` without access, at `bytes` with it. */
struct allocation {
	CUdeviceptr address;
	unsigned char *bytes;
	size_t len;
	int device;
	int fd;				/* of the memory; -1: another process's */
	uint64_t number;
	bool is_synchronous;		/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
};

struct work {
	struct work *next;
	void *to;
	const void *from;
	size_t len;
	volatile int *flag;		/* a kernel, which waits for it */
	bool fails;
};

struct stream {
	struct work *first, **last;
	uint64_t posted, done;
	bool is_blocking, failed;
	struct stream *next;
};

struct event {
	struct stream *stream;
	uint64_t after;
};

struct context {
	int device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct allocation allocations[ALLOCATIONS];
static struct context contexts[DEVICES] = { { 0 }, { 1 } };
static struct stream *streams, *default_stream;
static bool is_started, is_reset, is_held, fails_late, refuses_sharing, forges;
static unsigned failures, delay_us, waits, copies, within, opened, closed;
static uint64_t numbers;
static void (*on_free)(CUdeviceptr base);
static __thread struct context *stack[16];
static __thread int depth;

static struct context *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static struct allocation *find(CUdeviceptr address)
{
	for (int i = 0; i < ALLOCATIONS; i++) {
		struct allocation *it = &allocations[i];

		if (it->len && address >= it->address && address - it->address < it->len)
			return it;
	}
	return NULL;
}

/* Where the bytes of the device really are; NULL if not all of them are its. */
static unsigned char *real(CUdeviceptr address, size_t len)
{
	struct allocation *it = find(address);

	if (!it || len > it->len - (address - it->address))
		return NULL;
	return it->bytes + (address - it->address);
}

static void *run(void *arg)
{
	struct stream *stream = arg;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct work *work = stream->first;

		if (!work || (is_held && stream != default_stream)) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		struct timespec pause = { .tv_nsec = (long)delay_us * 1000 };
		pthread_mutex_unlock(&lock);
		while (work->flag && !*work->flag)
			usleep(100);
		if (!work->flag && pause.tv_nsec)
			nanosleep(&pause, NULL);
		if (!work->fails && !is_reset && work->len)
			memmove(work->to, work->from, work->len);
		pthread_mutex_lock(&lock);
		if (work->fails || is_reset)
			stream->failed = true;
		free(work);
		stream->done++;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

/* With the lock. */
static struct stream *new_stream(bool is_blocking)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	pthread_t thread;

	stream->last = &stream->first;
	stream->is_blocking = is_blocking;
	stream->next = streams;
	streams = stream;
	if (pthread_create(&thread, NULL, run, stream))
		abort();
	pthread_detach(thread);
	return stream;
}

static void post(struct stream *stream, struct work work)
{
	struct work *it = malloc(sizeof(*it));

	*it = work;
	it->next = NULL;
	*stream->last = it;
	stream->last = &it->next;
	stream->posted++;
	pthread_cond_broadcast(&changed);
}

/* Waits for all that was posted, with the lock: what several calls of the driver do. */
static void wait_for_device(void)
{
	waits++;
	for (struct stream *it = streams; it; it = it->next)
		while (it->done < it->posted)
			pthread_cond_wait(&changed, &lock);
}

static CUresult copy(void *to, const void *from, size_t len, struct stream *stream)
{
	CUresult status = SUCCESS;

	pthread_mutex_lock(&lock);
	if (is_reset) {
		status = LAUNCH_FAILED;
	} else if (!current()) {
		status = INVALID_CONTEXT;
	} else if (!to || !from) {
		status = INVALID_VALUE;
	} else if (failures && !fails_late) {
		failures--;
		status = ILLEGAL_ADDRESS;
	} else {
		bool fails = failures != 0;

		failures -= fails;
		copies++;
		if (!stream) {
			/* The default stream is behind everything else. */
			wait_for_device();
			stream = default_stream;
		}
		if (!delay_us && !is_held && !fails && stream != default_stream && !stream->first &&
		    stream->done == stream->posted) {
			/* A fast device: it is done before anybody asks. */
			memmove(to, from, len);
			stream->done = ++stream->posted;
		} else {
			post(stream, (struct work) { .to = to, .from = from, .len = len,
						     .fails = fails });
		}
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT CUresult cuInit(unsigned flags)
{
	const char *refuses = getenv("CT_DEVICE_REFUSES");

	if (flags || (refuses && *refuses))
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!is_started) {
		is_started = true;
		default_stream = new_stream(true);
	}
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = DEVICES;
	return is_started ? SUCCESS : NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(int *device, int number)
{
	if (number < 0 || number >= DEVICES)
		return INVALID_VALUE;
	*device = number;
	return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	if (!is_started || device < 0 || device >= DEVICES)
		return INVALID_VALUE;
	*context = &contexts[device];
	return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(struct context *context)
{
	if (!context || depth == 16)
		return INVALID_CONTEXT;
	stack[depth++] = context;
	return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(struct context **context)
{
	if (!depth)
		return INVALID_CONTEXT;
	*context = stack[--depth];
	return SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(struct context *context)
{
	depth = 1;
	stack[0] = context;
	return SUCCESS;
}

EXPORT CUresult cuStreamCreate(struct stream **stream, unsigned flags)
{
	if (!current() || is_reset)
		return INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	*stream = new_stream(!(flags & NON_BLOCKING));
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

EXPORT CUresult cuEventCreate(struct event **event, unsigned flags)
{
	(void)flags;
	*event = calloc(1, sizeof(**event));
	return *event ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT CUresult cuEventRecord(struct event *event, struct stream *stream)
{
	pthread_mutex_lock(&lock);
	event->stream = stream ? stream : default_stream;
	event->after = event->stream->posted;
	pthread_mutex_unlock(&lock);
	return is_reset ? LAUNCH_FAILED : SUCCESS;
}

EXPORT CUresult cuEventQuery(struct event *event)
{
	CUresult status = SUCCESS;

	pthread_mutex_lock(&lock);
	if (is_reset)
		status = LAUNCH_FAILED;
	else if (event->stream && event->stream->done < event->after)
		status = NOT_READY;
	else if (event->stream && event->stream->failed)
		status = ILLEGAL_ADDRESS;
	pthread_mutex_unlock(&lock);
	return status;
}

/* Frees memory and allocates it only when the device has nothing to do. With the lock. */
static void wait_to_change(void)
{
	wait_for_device();
	waits--;
}

/* Maps the file of an allocation; with the lock. */
static CUresult enter(int fd, size_t len, int device, bool is_own, CUdeviceptr *address)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t whole = (len + page - 1) / page * page;

	for (int i = 0; i < ALLOCATIONS; i++) {
		struct allocation *it = &allocations[i];
		void *outside, *inside;

		if (it->len)
			continue;
		outside = mmap(NULL, whole, PROT_NONE, MAP_SHARED, fd, 0);
		inside = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (outside == MAP_FAILED || inside == MAP_FAILED)
			return OUT_OF_MEMORY;
		*it = (struct allocation) {
			.address = (CUdeviceptr)(uintptr_t)outside, .bytes = inside, .len = len,
			.device = device, .fd = is_own ? fd : -1, .number = ++numbers,
		};
		*address = it->address;
		return SUCCESS;
	}
	return OUT_OF_MEMORY;
}

static void leave(struct allocation *it)
{
	munmap((void *)(uintptr_t)it->address, it->len);
	munmap(it->bytes, it->len);
	if (it->fd >= 0)
		close(it->fd);
	it->len = 0;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t len)
{
	CUresult status = OUT_OF_MEMORY;
	int fd;

	if (!current() || !len)
		return INVALID_VALUE;
	fd = memfd_create("device", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)len))
		return status;
	pthread_mutex_lock(&lock);
	wait_to_change();
	status = enter(fd, len, current()->device, true, address);
	pthread_mutex_unlock(&lock);
	if (status)
		close(fd);
	return status;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
	CUresult status = INVALID_VALUE;
	struct allocation *it;

	if (on_free)
		on_free(address);
	pthread_mutex_lock(&lock);
	wait_to_change();
	it = find(address);
	if (it && it->address == address && it->fd >= 0) {
		leave(it);
		status = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* The handle of an allocation: where its file is. */
struct handle {
	char mark[8];
	int32_t pid, fd, device, unused;
	char rest[40];
};

EXPORT CUresult cuIpcGetMemHandle(struct handle *handle, CUdeviceptr address)
{
	CUresult status = INVALID_VALUE;
	struct allocation *it;

	pthread_mutex_lock(&lock);
	it = find(address);
	if (refuses_sharing) {
		status = NOT_SUPPORTED;
	} else if (it && it->fd >= 0) {
		*handle = (struct handle) {
			.pid = getpid(), .fd = it->fd, .device = it->device,
		};
		memcpy(handle->mark, forges ? "nothing" : "standin", 8);
		status = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* A process cannot open its own memory. */
EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct handle handle, unsigned flags)
{
	CUresult status = INVALID_VALUE;
	struct stat stat;
	char path[64];
	int fd;

	if (flags != 1 || memcmp(handle.mark, "standin", 8) || handle.pid == getpid() || !current())
		return INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!fstat(fd, &stat) && stat.st_size && handle.device == current()->device)
		status = enter(fd, (size_t)stat.st_size, handle.device, false, address);
	opened += !status;
	pthread_mutex_unlock(&lock);
	close(fd);
	return status;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	CUresult status = INVALID_VALUE;
	struct allocation *it;

	pthread_mutex_lock(&lock);
	wait_to_change();
	it = find(address);
	if (it && it->address == address && it->fd < 0) {
		leave(it);
		closed++;
		status = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, int device)
{
	memcpy(uuid, "stand-in device", 16);
	uuid[15] = (unsigned char)device;
	return SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **memory, size_t len, unsigned flags)
{
	(void)flags;
	*memory = calloc(1, len);
	return *memory ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t len, struct stream *stream)
{
	return copy(to, real(from, len), len, stream);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t len,
				     struct stream *stream)
{
	return copy(real(to, len), from, len, stream);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t len,
				     struct stream *stream)
{
	__atomic_add_fetch(&within, 1, __ATOMIC_RELAXED);
	return copy(real(to, len), real(from, len), len, stream);
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data,
				       CUdeviceptr address)
{
	enum { MEMORY_TYPE = 2, BUFFER_ID = 7, ORDINAL = 9, OF_DEVICE = 2 };
	struct allocation *it;

	pthread_mutex_lock(&lock);
	it = find(address);
	for (unsigned i = 0; i < count; i++) {
		if (attributes[i] == MEMORY_TYPE)
			*(unsigned *)data[i] = it ? OF_DEVICE : 0;
		else if (attributes[i] == ORDINAL)
			*(int *)data[i] = it ? it->device : -2;
		else if (attributes[i] == BUFFER_ID)
			*(uint64_t *)data[i] = it ? it->number : 0;
	}
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, unsigned attribute, CUdeviceptr address)
{
	enum { SYNC_MEMOPS = 6 };
	struct allocation *it;

	pthread_mutex_lock(&lock);
	it = find(address);
	if (it && attribute == SYNC_MEMOPS)
		it->is_synchronous = *(const unsigned *)value;
	pthread_mutex_unlock(&lock);
	return it ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *len, CUdeviceptr address)
{
	struct allocation *it;

	pthread_mutex_lock(&lock);
	it = find(address);
	if (it && base)
		*base = it->address;
	if (it && len)
		*len = it->len;
	pthread_mutex_unlock(&lock);
	return it ? SUCCESS : INVALID_VALUE;
}

/* What libfabric does not call, and upstream's test programs do. */
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
	(void)attribute;
	(void)device;
	*value = 0;
	return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, int device)
{
	(void)device;
	if (len < 9)
		return INVALID_VALUE;
	memcpy(name, "stand-in", 9);
	return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = 12040;
	return SUCCESS;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t len,
					      int type, unsigned long long flags)
{
	(void)handle;
	(void)address;
	(void)len;
	(void)type;
	(void)flags;
	return NOT_SUPPORTED;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
	(void)error;
	*text = "an error of the stand-in";
	return SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" :
		error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
	return SUCCESS;
}

/* What only the stand-in has. */
EXPORT void standin_poke(CUdeviceptr address, const void *data, size_t len)
{
	unsigned char *bytes = real(address, len);

	if (!bytes)
		abort();
	memcpy(bytes, data, len);
}

EXPORT void standin_peek(CUdeviceptr address, void *data, size_t len)
{
	unsigned char *bytes = real(address, len);

	if (!bytes)
		abort();
	memcpy(data, bytes, len);
}

EXPORT void standin_kernel(volatile int *flag)
{
	pthread_mutex_lock(&lock);
	post(default_stream, (struct work) { .flag = flag });
	pthread_mutex_unlock(&lock);
}

EXPORT void standin_delay(unsigned microseconds)
{
	delay_us = microseconds;
}

EXPORT void standin_hold(bool hold)
{
	pthread_mutex_lock(&lock);
	is_held = hold;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

EXPORT void standin_fail(unsigned count, bool late)
{
	pthread_mutex_lock(&lock);
	failures = count;
	fails_late = late;
	pthread_mutex_unlock(&lock);
}

EXPORT void standin_reset(void)
{
	is_reset = true;
}

EXPORT void standin_renew(void)
{
	is_reset = false;
}

EXPORT void standin_refuse_sharing(bool refuse)
{
	refuses_sharing = refuse;
}

EXPORT void standin_forge(bool forge)
{
	forges = forge;
}

EXPORT unsigned standin_opened(void)
{
	return opened;
}

EXPORT unsigned standin_closed(void)
{
	return closed;
}

EXPORT unsigned standin_within(void)
{
	return within;
}

EXPORT unsigned standin_waits(void)
{
	return waits;
}

/* Called before an allocation is freed. */
EXPORT void standin_on_free(void (*call)(CUdeviceptr base))
{
	on_free = call;
}

EXPORT bool standin_synchronous(CUdeviceptr address)
{
	return find(address)->is_synchronous;
}

EXPORT unsigned standin_copies(void)
{
	return copies;
}
