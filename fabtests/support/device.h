/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A device without hardware: a library that stands in for libcuda.so.1.
 *
 * Its memory is mapped twice: once without access, at the address that programs
 * have, and once where only its copies reach it, so that a processor that touches
 * the former is killed (SIGSEGV). Its streams are threads; the default stream waits
 * for all blocking ones, as with the real driver, and calls that wait for the device
 * there wait for it here. The functions below are only in it.
 */
#ifndef CT_DEVICE_H
#define CT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_DEVICES 2

/* The stand-in's functions, and those of the driver that the programs use. */
struct ct_device {
	/* Fills or reads memory of the device, at once: no stream is involved. */
	void (*poke)(uint64_t address, const void *data, size_t len);
	void (*peek)(uint64_t address, void *data, size_t len);
	/* A kernel on the default stream that ends when *flag is not 0. */
	void (*kernel)(volatile int *flag);
	/* Every copy from now on takes so many microseconds longer. */
	void (*delay)(unsigned microseconds);
	/* Has copies on streams of libfabric's wait, until it is called with false. */
	void (*hold)(bool hold);
	/* So many copies from now on fail: when they are posted, or later. */
	void (*fail)(unsigned copies, bool late);
	/* The device is reset: nothing works any more. */
	void (*reset)(void);
	/* What is done from now on works again. */
	void (*renew)(void);
	/* Calls that copied on the default stream, or waited for the device. */
	unsigned (*waits)(void);
	/* Copies that were made. */
	unsigned (*copies)(void);
	/* Those from memory of the device to memory of the device. */
	unsigned (*within)(void);
	/* Makes no handles of memory for other processes from now on. */
	void (*refuse_sharing)(bool refuse);
	/* Makes handles that stand for nothing. */
	void (*forge)(bool forge);
	/* Allocations of other processes that this one has opened, and closed again. */
	unsigned (*opened)(void);
	unsigned (*closed)(void);
	/* Whether copies of the program's from and to the allocation are all synchronous. */
	bool (*synchronous)(uint64_t address);
	int (*alloc)(uint64_t *address, size_t len);
	int (*free)(uint64_t address);
	int (*use)(int device);
};

/* Loads the library; the same for all calls of a process. */
const struct ct_device *ct_device(void);

/* Loads it, and one over it that stands in for the library of another interface, which is returned. */
void *ct_device_as(const char *library);

#endif
