// SPDX-License-Identifier: BSD-2-Clause OR MIT
/*
 * An MPI program that checks every byte it receives.
 *
 *   mpi_verify [-q] [-t] [-m] [-o] [-l ITERATIONS]
 *
 *     -q   quick: small sizes and few repetitions
 *     -t   ask for MPI_THREAD_MULTIPLE and let several threads talk at once
 *     -m   no matched probes (Open MPI's fail on the C library's tcp provider)
 *     -o   no one-sided communication
 *     -l   round trips of the 8-byte latency measurement, 0 to leave it out
 *
 * Each rank prints what went wrong to standard error and the program ends
 * with status 1 if any rank found an error. Rank 0 prints one line per
 * subject that passed, then "latency_us VALUE" and "mpi_verify: PASS".
 */
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;
static int quick, threaded, matched_probes = 1, with_one_sided = 1;
static int latency_rounds = 2000;
static long errors;

static void complain(const char *format, ...)
{
	va_list arguments;

	if (__atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED) > 20)
		return;
	fprintf(stderr, "rank %d: ", rank);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static void *allocate(size_t size)
{
	void *memory = malloc(size ? size : 1);

	if (!memory) {
		fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, size);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	return memory;
}

/* A byte that depends on its place and on a seed, so that a message which is
 * shifted, repeated, swapped with another or cut short is noticed. */
static uint8_t pattern(uint32_t seed, size_t place)
{
	uint32_t mixed = (uint32_t) place * 2654435761u + seed * 40503u;

	return (uint8_t) (mixed >> 24 ^ mixed >> 9);
}

static void fill(void *buffer, size_t size, uint32_t seed)
{
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < size; i++)
		bytes[i] = pattern(seed, i);
}

static void verify(const void *buffer, size_t size, uint32_t seed, const char *what)
{
	const uint8_t *bytes = buffer;

	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != pattern(seed, i)) {
			complain("%s: byte %zu of %zu is %02x, expected %02x",
				 what, i, size, bytes[i], pattern(seed, i));
			return;
		}
	}
}

static uint32_t seed_of(int from, int to, int number)
{
	return (uint32_t) from * 7919u + (uint32_t) to * 104729u + (uint32_t) number * 31u + 1u;
}

static void expect_status(const MPI_Status *status, int source, int tag, int count,
			  const char *what)
{
	int got;

	MPI_Get_count(status, MPI_BYTE, &got);
	if (status->MPI_SOURCE != source || status->MPI_TAG != tag || got != count)
		complain("%s: status says source %d tag %d count %d, expected %d %d %d",
			 what, status->MPI_SOURCE, status->MPI_TAG, got, source, tag, count);
}

/* Sizes on both sides of the limits that MPI libraries and providers have for
 * inject, eager and rendezvous messages. */
static const size_t sizes[] = {
	0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 1023, 1024, 4096, 8191, 8192, 8193,
	16384, 32768, 65535, 65536, 65537, 131072, 262144, 1000003, 1 << 22, 33554433,
};

static size_t size_count(void)
{
	size_t all = sizeof(sizes) / sizeof(sizes[0]);

	return quick ? all - 2 : all;
}

/* Blocking messages round a ring; every rank sends to its right neighbour. */
static void point_to_point(void)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (size_t s = 0; s < size_count(); s++) {
		size_t size = sizes[s];
		uint8_t *out = allocate(size), *in = allocate(size);
		int number = (int) s;
		MPI_Status status;

		fill(out, size, seed_of(rank, right, number));
		memset(in, 0xee, size);
		if (rank % 2 == 0 && right != rank) {
			MPI_Send(out, (int) size, MPI_BYTE, right, number, MPI_COMM_WORLD);
			MPI_Recv(in, (int) size, MPI_BYTE, left, number, MPI_COMM_WORLD, &status);
		} else {
			MPI_Sendrecv(out, (int) size, MPI_BYTE, right, number, in, (int) size,
				     MPI_BYTE, left, number, MPI_COMM_WORLD, &status);
		}
		expect_status(&status, left, number, (int) size, "send");
		verify(in, size, seed_of(left, rank, number), "send");

		memset(in, 0xee, size);
		MPI_Request request;
		MPI_Irecv(in, (int) size, MPI_BYTE, left, 1000 + number, MPI_COMM_WORLD, &request);
		MPI_Ssend(out, (int) size, MPI_BYTE, right, 1000 + number, MPI_COMM_WORLD);
		MPI_Wait(&request, &status);
		expect_status(&status, left, 1000 + number, (int) size, "ssend");
		verify(in, size, seed_of(left, rank, number), "ssend");
		free(out);
		free(in);
	}
}

/* Many messages in flight between every pair, completed in another order than
 * they were posted. */
static void nonblocking(void)
{
	enum { WINDOW = 48 };
	int repeats = quick ? 2 : 8;

	for (int repeat = 0; repeat < repeats; repeat++) {
		int total = 2 * WINDOW * ranks;
		MPI_Request *requests = allocate(sizeof(*requests) * (size_t) total);
		uint8_t **buffers = allocate(sizeof(*buffers) * (size_t) total);
		int *peers = allocate(sizeof(int) * (size_t) total);
		int used = 0;

		for (int i = 0; i < WINDOW; i++) {
			size_t size = sizes[(size_t) (i * 5 + repeat) % (size_count() - 4)];

			for (int peer = 0; peer < ranks; peer++) {
				int tag = WINDOW - 1 - i;

				buffers[used] = allocate(size);
				memset(buffers[used], 0xee, size);
				peers[used] = peer;
				MPI_Irecv(buffers[used], (int) size, MPI_BYTE, peer, i,
					  MPI_COMM_WORLD, &requests[used]);
				used++;
				size_t out_size = sizes[(size_t) (tag * 5 + repeat) % (size_count() - 4)];
				buffers[used] = allocate(out_size);
				fill(buffers[used], out_size, seed_of(rank, peer, tag));
				peers[used] = -1;
				MPI_Isend(buffers[used], (int) out_size, MPI_BYTE, peer, tag,
					  MPI_COMM_WORLD, &requests[used]);
				used++;
			}
		}
		MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < used; i++) {
			int number = i / (2 * ranks);
			size_t size = sizes[(size_t) (number * 5 + repeat) % (size_count() - 4)];

			if (peers[i] >= 0)
				verify(buffers[i], size, seed_of(peers[i], rank, number), "irecv");
			free(buffers[i]);
		}
		free(peers);
		free(buffers);
		free(requests);
	}
}

/* Unexpected messages: everything is sent before anything is received, then
 * taken by probe, by matched probe, and from any source. */
static void probes(void)
{
	enum { MESSAGES = 40 };
	uint8_t *out[MESSAGES];
	MPI_Request *requests = allocate(sizeof(*requests) * (size_t) (MESSAGES * ranks));
	int *seen = allocate(sizeof(int) * (size_t) ranks);
	int used = 0;

	for (int i = 0; i < MESSAGES; i++) {
		size_t size = (size_t) (i * 977 + 3);

		out[i] = allocate(size);
		fill(out[i], size, seed_of(rank, 0, i));
		for (int peer = 0; peer < ranks; peer++)
			if (peer != rank)
				MPI_Isend(out[i], (int) size, MPI_BYTE, peer, i, MPI_COMM_WORLD,
					  &requests[used++]);
	}
	memset(seen, 0, sizeof(int) * (size_t) ranks);
	for (int i = 0; i < MESSAGES * (ranks - 1); i++) {
		MPI_Status status;
		MPI_Message message;
		int count;

		if (i % 2 && matched_probes) {
			MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
		} else {
			int flag = 0;
			do
				MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
			while (!flag);
		}
		MPI_Get_count(&status, MPI_BYTE, &count);
		if (status.MPI_TAG != seen[status.MPI_SOURCE]++)
			complain("probe: message %d of rank %d overtook another", status.MPI_TAG,
				 status.MPI_SOURCE);
		if (count != status.MPI_TAG * 977 + 3)
			complain("probe: %d bytes of message %d", count, status.MPI_TAG);
		uint8_t *in = allocate((size_t) count);
		if (i % 2 && matched_probes)
			MPI_Mrecv(in, count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
		else
			MPI_Recv(in, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
				 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		verify(in, (size_t) count, seed_of(status.MPI_SOURCE, 0, status.MPI_TAG), "probe");
		free(in);
	}
	MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MESSAGES; i++)
		free(out[i]);
	free(seen);
	free(requests);

	/* A receive without a message can be cancelled. */
	char nothing[8];
	MPI_Request request;
	MPI_Status status;
	int cancelled;
	MPI_Irecv(nothing, 8, MPI_BYTE, rank, 4321, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &cancelled);
	if (!cancelled)
		complain("cancel: the receive was not cancelled");
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Messages whose memory is not contiguous. */
static void datatypes(void)
{
	enum { BLOCKS = 3000, BLOCK = 5, STRIDE = 11 };
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	int *out = allocate(sizeof(int) * BLOCKS * STRIDE);
	int *in = allocate(sizeof(int) * BLOCKS * STRIDE);
	MPI_Datatype vector;

	MPI_Type_vector(BLOCKS, BLOCK, STRIDE, MPI_INT, &vector);
	MPI_Type_commit(&vector);
	for (int i = 0; i < BLOCKS * STRIDE; i++) {
		out[i] = rank * 1000000 + i;
		in[i] = -1;
	}
	MPI_Sendrecv(out, 1, vector, right, 5, in, 1, vector, left, 5, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int i = 0; i < BLOCKS * STRIDE; i++) {
		int wanted = i % STRIDE < BLOCK ? left * 1000000 + i : -1;

		if (i / STRIDE == BLOCKS - 1 && i % STRIDE >= BLOCK)
			wanted = -1;
		if (in[i] != wanted) {
			complain("vector: element %d is %d, expected %d", i, in[i], wanted);
			break;
		}
	}
	MPI_Type_free(&vector);
	free(out);
	free(in);
}

static void reductions(MPI_Comm comm)
{
	static const int counts[] = { 1, 3, 128, 1000, 20000, 300000 };
	int me, all, kinds = quick ? 5 : 6;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	for (int c = 0; c < kinds; c++) {
		int count = counts[c];
		int64_t *out = allocate(sizeof(*out) * (size_t) count);
		int64_t *in = allocate(sizeof(*in) * (size_t) count);

		for (int i = 0; i < count; i++)
			out[i] = (int64_t) (me + 1) * (i + 1);
		memset(in, 0xee, sizeof(*in) * (size_t) count);
		MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_SUM, comm);
		for (int i = 0; i < count; i++) {
			if (in[i] != (int64_t) (i + 1) * all * (all + 1) / 2) {
				complain("allreduce: element %d of %d is %lld", i, count,
					 (long long) in[i]);
				break;
			}
		}
		memset(in, 0xee, sizeof(*in) * (size_t) count);
		MPI_Reduce(out, in, count, MPI_INT64_T, MPI_MAX, all - 1, comm);
		if (me == all - 1) {
			for (int i = 0; i < count; i++) {
				if (in[i] != (int64_t) all * (i + 1)) {
					complain("reduce: element %d of %d is %lld", i, count,
						 (long long) in[i]);
					break;
				}
			}
		}
		memset(in, 0xee, sizeof(*in) * (size_t) count);
		MPI_Scan(out, in, count, MPI_INT64_T, MPI_SUM, comm);
		for (int i = 0; i < count; i++) {
			if (in[i] != (int64_t) (i + 1) * (me + 1) * (me + 2) / 2) {
				complain("scan: element %d of %d is %lld", i, count,
					 (long long) in[i]);
				break;
			}
		}
		free(out);
		free(in);
	}
}

static void movements(MPI_Comm comm)
{
	static const size_t lengths[] = { 1, 64, 1000, 9000, 70000, 600001 };
	int me, all, kinds = quick ? 5 : 6;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	for (int k = 0; k < kinds; k++) {
		size_t size = lengths[k];
		uint8_t *out = allocate(size * (size_t) all), *in = allocate(size * (size_t) all);

		for (int root = 0; root < all; root++) {
			if (me == root)
				fill(in, size, seed_of(root, 0, k));
			else
				memset(in, 0xee, size);
			MPI_Bcast(in, (int) size, MPI_BYTE, root, comm);
			verify(in, size, seed_of(root, 0, k), "bcast");
		}
		for (int peer = 0; peer < all; peer++)
			fill(out + size * (size_t) peer, size, seed_of(me, peer, k));
		memset(in, 0xee, size * (size_t) all);
		MPI_Alltoall(out, (int) size, MPI_BYTE, in, (int) size, MPI_BYTE, comm);
		for (int peer = 0; peer < all; peer++)
			verify(in + size * (size_t) peer, size, seed_of(peer, me, k), "alltoall");

		memset(in, 0xee, size * (size_t) all);
		MPI_Allgather(out, (int) size, MPI_BYTE, in, (int) size, MPI_BYTE, comm);
		for (int peer = 0; peer < all; peer++)
			verify(in + size * (size_t) peer, size, seed_of(peer, 0, k), "allgather");

		memset(in, 0xee, size * (size_t) all);
		MPI_Scatter(out, (int) size, MPI_BYTE, in, (int) size, MPI_BYTE, 0, comm);
		verify(in, size, seed_of(0, me, k), "scatter");

		memset(in, 0xee, size * (size_t) all);
		MPI_Gather(out, (int) size, MPI_BYTE, in, (int) size, MPI_BYTE, all - 1, comm);
		if (me == all - 1)
			for (int peer = 0; peer < all; peer++)
				verify(in + size * (size_t) peer, size, seed_of(peer, 0, k), "gather");

		MPI_Request request;
		memset(in, 0xee, size * (size_t) all);
		MPI_Ialltoall(out, (int) size, MPI_BYTE, in, (int) size, MPI_BYTE, comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int peer = 0; peer < all; peer++)
			verify(in + size * (size_t) peer, size, seed_of(peer, me, k), "ialltoall");
		free(out);
		free(in);
	}
	for (int i = 0; i < (quick ? 50 : 500); i++)
		MPI_Barrier(comm);
}

static void collectives(void)
{
	reductions(MPI_COMM_WORLD);
	movements(MPI_COMM_WORLD);
}

/* Communicators of half the ranks and of all in reverse order. */
static void communicators(void)
{
	MPI_Comm half, reversed, copy;
	int me, value, sum;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	reductions(half);
	MPI_Comm_free(&half);

	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
	MPI_Comm_rank(reversed, &me);
	if (me != ranks - 1 - rank)
		complain("split: rank %d in the reversed communicator", me);
	movements(reversed);
	MPI_Comm_free(&reversed);

	for (int i = 0; i < (quick ? 5 : 40); i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &copy);
		value = rank + i;
		MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, copy);
		if (sum != ranks * (ranks - 1) / 2 + ranks * i)
			complain("dup: sum %d", sum);
		MPI_Comm_free(&copy);
	}
}

/* One-sided: every rank writes to, reads from and adds into its neighbours'
 * windows, in the three ways of synchronizing. */
static void one_sided(void)
{
	static const size_t lengths[] = { 1, 8, 200, 4096, 50000, 1 << 20 };
	size_t region = 1 << 20;
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	uint8_t *window, *out = allocate(region), *in = allocate(region);
	MPI_Win win;

	MPI_Win_allocate((MPI_Aint) (2 * region), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	for (int k = 0; k < (quick ? 5 : 6); k++) {
		int size = (int) lengths[k];

		/* fence: put to the right, then read it back from the right */
		memset(window, 0xee, 2 * region);
		fill(out, lengths[k], seed_of(rank, right, k));
		MPI_Win_fence(0, win);
		MPI_Put(out, size, MPI_BYTE, right, 0, size, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		verify(window, lengths[k], seed_of(left, rank, k), "put");
		if (window[lengths[k]] != 0xee)
			complain("put: wrote past its %d bytes", size);
		memset(in, 0xee, lengths[k]);
		MPI_Get(in, size, MPI_BYTE, right, 0, size, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		verify(in, lengths[k], seed_of(rank, right, k), "get");

		/* lock: the same in the second half, with flushes */
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, left, 0, win);
		MPI_Put(out, size, MPI_BYTE, left, (MPI_Aint) region, size, MPI_BYTE, win);
		MPI_Win_flush(left, win);
		memset(in, 0xee, lengths[k]);
		MPI_Get(in, size, MPI_BYTE, left, (MPI_Aint) region, size, MPI_BYTE, win);
		MPI_Win_unlock(left, win);
		verify(in, lengths[k], seed_of(rank, right, k), "locked get");
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);

	/* accumulate, fetch-and-op and compare-and-swap on shared counters */
	enum { CELLS = 512 };
	int64_t *cells, *ones = allocate(sizeof(*ones) * CELLS);
	int rounds = quick ? 10 : 50;
	MPI_Win counters;

	MPI_Win_allocate(sizeof(*cells) * CELLS, sizeof(*cells), MPI_INFO_NULL, MPI_COMM_WORLD,
			 &cells, &counters);
	MPI_Win_lock_all(0, counters);
	for (int i = 0; i < CELLS; i++) {
		cells[i] = 0;
		ones[i] = i + 1;
	}
	MPI_Win_sync(counters);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < rounds; i++)
		for (int peer = 0; peer < ranks; peer++)
			MPI_Accumulate(ones, CELLS, MPI_INT64_T, peer, 0, CELLS, MPI_INT64_T,
				       MPI_SUM, counters);
	MPI_Win_flush_all(counters);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(counters);
	for (int i = 0; i < CELLS; i++) {
		if (cells[i] != (int64_t) (i + 1) * rounds * ranks) {
			complain("accumulate: cell %d is %lld", i, (long long) cells[i]);
			break;
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);

	int64_t base = (int64_t) rounds * ranks, one = 1, last = -1;
	for (int i = 0; i < rounds; i++) {
		int64_t before;

		MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, counters);
		MPI_Win_flush(0, counters);
		if (before <= last || before < base || before >= base + (int64_t) rounds * ranks)
			complain("fetch_and_op: %lld after %lld", (long long) before,
				 (long long) last);
		last = before;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	int64_t total, expected = base + (int64_t) rounds * ranks, swapped = 77, found;
	MPI_Fetch_and_op(NULL, &total, MPI_INT64_T, 0, 0, MPI_NO_OP, counters);
	MPI_Win_flush(0, counters);
	if (total != expected)
		complain("fetch_and_op: total %lld, expected %lld", (long long) total,
			 (long long) expected);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Compare_and_swap(&swapped, &expected, &found, MPI_INT64_T, 0, 0, counters);
	MPI_Win_flush(0, counters);
	int winner = found == expected, winners;
	MPI_Allreduce(&winner, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (winners != 1 || (!winner && found != swapped))
		complain("compare_and_swap: %d winners, found %lld", winners, (long long) found);
	MPI_Win_unlock_all(counters);
	MPI_Win_free(&counters);

	/* post, start, complete, wait */
	MPI_Win_create(in, (MPI_Aint) region, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Group world, to, from;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &right, &to);
	MPI_Group_incl(world, 1, &left, &from);
	memset(in, 0xee, region);
	fill(out, 30000, seed_of(rank, right, 99));
	MPI_Win_post(from, 0, win);
	MPI_Win_start(to, 0, win);
	MPI_Put(out, 30000, MPI_BYTE, right, 0, 30000, MPI_BYTE, win);
	MPI_Win_complete(win);
	MPI_Win_wait(win);
	verify(in, 30000, seed_of(left, rank, 99), "put in post-start");
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Group_free(&world);
	MPI_Win_free(&win);
	free(ones);
	free(out);
	free(in);
}

/* Each thread speaks with its namesake on the next rank, on its own
 * communicator, while the others do the same. */
struct talk {
	int number;
	MPI_Comm comm;
};

static void *thread_main(void *argument)
{
	struct talk *talk = argument;
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (int i = 0; i < (quick ? 60 : 600); i++) {
		size_t size = sizes[(size_t) (i * 7 + talk->number) % (size_count() - 5)];
		uint8_t *out = allocate(size), *in = allocate(size);
		int number = talk->number * 100000 + i;
		MPI_Request requests[2];
		MPI_Status statuses[2];

		fill(out, size, seed_of(rank, right, number));
		memset(in, 0xee, size);
		MPI_Irecv(in, (int) size, MPI_BYTE, left, i, talk->comm, &requests[0]);
		MPI_Isend(out, (int) size, MPI_BYTE, right, i, talk->comm, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		expect_status(&statuses[0], left, i, (int) size, "thread");
		verify(in, size, seed_of(left, rank, number), "thread");
		free(out);
		free(in);
	}
	return NULL;
}

static void threads(void)
{
	enum { THREADS = 4 };
	pthread_t handles[THREADS];
	struct talk talks[THREADS];

	for (int i = 0; i < THREADS; i++) {
		talks[i].number = i;
		MPI_Comm_dup(MPI_COMM_WORLD, &talks[i].comm);
	}
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&handles[i], NULL, thread_main, &talks[i])) {
			fprintf(stderr, "rank %d: no thread\n", rank);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(handles[i], NULL);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&talks[i].comm);
}

static void latency(void)
{
	char word[8] = { 0 };
	double start = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank < 2 && ranks > 1) {
		for (int i = -latency_rounds / 10; i < latency_rounds; i++) {
			if (i == 0)
				start = MPI_Wtime();
			if (rank == 0) {
				MPI_Send(word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
				MPI_Recv(word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			} else {
				MPI_Recv(word, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				MPI_Send(word, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
			}
		}
		if (rank == 0)
			printf("latency_us %.2f\n",
			       (MPI_Wtime() - start) / latency_rounds / 2 * 1e6);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void section(const char *name, void (*body)(void))
{
	long mine, all;
	double start = MPI_Wtime();

	body();
	mine = __atomic_load_n(&errors, __ATOMIC_RELAXED);
	MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("%-15s %s  %.2f s\n", name, all ? "FAIL" : "ok", MPI_Wtime() - start);
		fflush(stdout);
	}
}

/* The libfabric.so.1 files that this process has mapped, for the harness. */
static void show_library(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], last[4096] = "";

	while (maps && fgets(line, sizeof(line), maps)) {
		char *path = strchr(line, '/');

		if (path && strstr(path, "libfabric") && strcmp(path, last)) {
			strcpy(last, path);
			printf("rank %d mapped %s", rank, path);
		}
	}
	if (maps)
		fclose(maps);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int option, provided;
	long all;

	while ((option = getopt(argc, argv, "qtmol:")) != -1) {
		switch (option) {
		case 'q':
			quick = 1;
			break;
		case 't':
			threaded = 1;
			break;
		case 'm':
			matched_probes = 0;
			break;
		case 'o':
			with_one_sided = 0;
			break;
		case 'l':
			latency_rounds = atoi(optarg);
			break;
		default:
			fprintf(stderr, "usage: mpi_verify [-q] [-t] [-m] [-o] [-l ITERATIONS]\n");
			return 2;
		}
	}
	MPI_Init_thread(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	show_library();
	if (threaded && provided != MPI_THREAD_MULTIPLE) {
		if (rank == 0)
			printf("mpi_verify: SKIP this MPI has no MPI_THREAD_MULTIPLE\n");
		MPI_Finalize();
		return 0;
	}
	section("point to point", point_to_point);
	section("nonblocking", nonblocking);
	section("probes", probes);
	section("datatypes", datatypes);
	section("collectives", collectives);
	section("communicators", communicators);
	if (with_one_sided)
		section("one-sided", one_sided);
	if (threaded)
		section("threads", threads);
	if (latency_rounds > 0)
		latency();
	MPI_Allreduce(&errors, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("mpi_verify: %s\n", all ? "FAIL" : "PASS");
	MPI_Finalize();
	return all != 0;
}
