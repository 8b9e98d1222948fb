/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Memory, descriptors and threads of a process, between epochs. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "process.h"
#include "soak.h"

enum {
	/*
	 * After the first one. What an epoch leaves varies by megabytes with what was open when it
	 * ended: the least of a period is then larger than that before by chance, in half of all
	 * cases, but in one of five thousand tests in all of them.
	 */
	PERIODS = 6,
	SHORTEST = 8,			/* epochs of a period: in these each station was opened anew */
	/*
	 * The part of the epochs that comes before the first period: what is kept fills meanwhile,
	 * slowly on a busy machine.
	 */
	WARM_UP = 4,
	/*
	 * KiB by which each may grow in the rest of the test. A leak grows in every period, and
	 * what fills once (caches, buffers that are kept) in some: the least growth of a period,
	 * that often, counts. A leak of 16 bytes at a thousandth of the operations is found in
	 * an hour, and one of 64 bytes at each in seconds.
	 */
	HEAP_KIB = 256,
	/* The allocator's fragments come on top, and pages of kept buffers that are used late. */
	RESIDENT_KIB = 3072,
};

enum what { HEAP, RESIDENT, DESCRIPTORS, THREADS_RUNNING, KINDS };

static const char *const names[KINDS] = { "KiB of the heap", "KiB of resident memory",
					  "descriptors", "threads" };

struct soak_usage {
	long *notes[KINDS];
	size_t count, capacity;
};

struct soak_usage *soak_usage_open(void)
{
	struct soak_usage *usage = calloc(1, sizeof(*usage));

	NEED(usage, "no memory");
	/* An hour of short epochs. */
	usage->capacity = 100000;
	for (int i = 0; i < KINDS; i++) {
		usage->notes[i] = calloc(usage->capacity, sizeof(long));
		NEED(usage->notes[i], "no memory");
		/* Present from the beginning. */
		for (size_t j = 0; j < usage->capacity; j += 256)
			((volatile long *)usage->notes[i])[j] = 0;
	}
	return usage;
}

static long threads_running(void)
{
	DIR *folder = opendir("/proc/self/task");
	long count = 0;

	NEED(folder, "no /proc/self/task");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

void soak_usage_note(struct soak_usage *usage)
{
	struct mallinfo2 heap;
	size_t at = usage->count;

	if (at == usage->capacity)
		return;
	malloc_trim(0);
	heap = mallinfo2();
	usage->notes[HEAP][at] = (long)((heap.uordblks + heap.hblkhd) >> 10);
	usage->notes[RESIDENT][at] = ct_resident() >> 10;
	usage->notes[DESCRIPTORS][at] = ct_descriptors();
	usage->notes[THREADS_RUNNING][at] = threads_running();
	usage->count++;
	if (getenv("SOAK_VERBOSE"))
		fprintf(stderr, "%zu: heap %ld, resident %ld, descriptors %ld, threads %ld\n", at,
			usage->notes[HEAP][at], usage->notes[RESIDENT][at],
			usage->notes[DESCRIPTORS][at], usage->notes[THREADS_RUNNING][at]);
}

/* The least value of a period. */
static long least(const long *notes, size_t first, size_t end)
{
	long value = notes[first];

	for (size_t i = first; i < end; i++)
		if (notes[i] < value)
			value = notes[i];
	return value;
}

/* The epochs of a period. */
static size_t length_of_period(size_t epochs)
{
	return (epochs - epochs / WARM_UP) / (PERIODS + 1);
}

bool soak_usage_suffices(size_t epochs)
{
	return length_of_period(epochs) >= SHORTEST;
}

void soak_usage_judge(struct soak_usage *usage)
{
	static const long allowed[KINDS] = { HEAP_KIB, RESIDENT_KIB, 0, 0 };
	size_t length = length_of_period(usage->count);

	if (!soak_usage_suffices(usage->count))
		return;
	for (int i = 0; i < KINDS; i++) {
		long growth = 0, before = 0, values[PERIODS + 1];

		for (int p = 0; p <= PERIODS; p++) {
			size_t first = usage->count / WARM_UP + (size_t)p * length;
			long now = least(usage->notes[i], first, first + length);

			values[p] = now;
			if (p == 1 || (p && now - before < growth))
				growth = now - before;
			before = now;
		}
		NEED(growth * PERIODS <= allowed[i], "%s grow: %ld %ld %ld %ld %ld %ld %ld", names[i],
		     values[0], values[1], values[2], values[3], values[4], values[5], values[6]);
	}
}
