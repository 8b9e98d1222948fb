/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Stands in for a libcuda.so.1 that lacks most of its functions: those that it has are not called. */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags)
{
	(void)flags;
	abort();
}

EXPORT int cuDeviceGetCount(int *count)
{
	(void)count;
	abort();
}
