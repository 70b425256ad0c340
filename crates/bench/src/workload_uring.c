// SPDX-License-Identifier: Apache-2.0
/*
 * Workload of `tollgate bench uring`: keep an io_uring busy with 128 operations.
 *
 *	workload-uring nop|read enter|sqpoll MILLISECONDS FILE
 *
 * `nop` does nothing; `read` reads 4 KiB from random offsets of FILE. `enter` submits with
 * io_uring_enter(2); `sqpoll` leaves that to the kernel's polling thread. Prints `rate=N`:
 * operations per second, the best of three windows.
 *
 * This is a program of its own, in C, because filling a submission queue is unsafe in Rust and
 * `unsafe` is confined to three crates of this workspace.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Tells the processor that the caller waits for memory to change. */
static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#define DEPTH	    128
#define BLOCK_BYTES 4096
#define WINDOWS	    3
/* How long the kernel's polling thread stays awake without work. */
#define SQPOLL_IDLE_MS 2000
/* Operations between two reads of the clock. */
#define CLOCK_INTERVAL 8192

struct load {
	int fd;
	unsigned int flags;
	unsigned int *sq_tail, *sq_flags, *cq_head, *cq_tail;
	unsigned int sq_mask, cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned int in_flight;
	/* 0 for `nop`. */
	uint64_t blocks;
	uint64_t random;
};

/* Only the kernel writes here, and nothing reads it. */
static char buffers[DEPTH][BLOCK_BYTES];

static void die(const char *what)
{
	fprintf(stderr, "workload-uring: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *map(int fd, size_t bytes, off_t offset)
{
	void *area =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);

	if (area == MAP_FAILED)
		die("mmap");
	return area;
}

static void setup(struct load *load, int sqpoll)
{
	struct io_uring_params params = {
		.flags = sqpoll ? IORING_SETUP_SQPOLL : 0,
		.sq_thread_idle = sqpoll ? SQPOLL_IDLE_MS : 0,
	};
	unsigned int *array;
	char *sq, *cq;

	load->fd = (int)syscall(SYS_io_uring_setup, DEPTH, &params);
	if (load->fd < 0)
		die("io_uring_setup");
	load->flags = params.flags;
	sq = map(load->fd, params.sq_off.array + params.sq_entries * sizeof(*array),
		 IORING_OFF_SQ_RING);
	cq = map(load->fd, params.cq_off.cqes + params.cq_entries * sizeof(*load->cqes),
		 IORING_OFF_CQ_RING);
	load->sqes = map(load->fd, params.sq_entries * sizeof(*load->sqes), IORING_OFF_SQES);
	load->sq_tail = (unsigned int *)(sq + params.sq_off.tail);
	load->sq_flags = (unsigned int *)(sq + params.sq_off.flags);
	load->sq_mask = *(unsigned int *)(sq + params.sq_off.ring_mask);
	load->cq_head = (unsigned int *)(cq + params.cq_off.head);
	load->cq_tail = (unsigned int *)(cq + params.cq_off.tail);
	load->cq_mask = *(unsigned int *)(cq + params.cq_off.ring_mask);
	load->cqes = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
	array = (unsigned int *)(sq + params.sq_off.array);
	for (unsigned int i = 0; i < params.sq_entries; i++)
		array[i] = i;
}

static void open_file(struct load *load, const char *path)
{
	struct stat about;
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0 || fstat(file, &about) < 0)
		die(path);
	load->blocks = (uint64_t)about.st_size / BLOCK_BYTES;
	if (load->blocks == 0) {
		errno = ENODATA;
		die(path);
	}
	if (syscall(SYS_io_uring_register, load->fd, IORING_REGISTER_FILES, &file, 1) < 0)
		die("io_uring_register");
}

static uint64_t next_random(struct load *load)
{
	load->random ^= load->random << 13;
	load->random ^= load->random >> 7;
	load->random ^= load->random << 17;
	return load->random;
}

/*
 * Queue operations until DEPTH are in flight. The submission queue has DEPTH entries and every
 * entry is consumed before its operation completes, so there is always room.
 */
static unsigned int fill(struct load *load)
{
	unsigned int queued = DEPTH - load->in_flight;
	unsigned int tail = *load->sq_tail;

	for (unsigned int i = 0; i < queued; i++) {
		struct io_uring_sqe *sqe = &load->sqes[tail++ & load->sq_mask];

		memset(sqe, 0, sizeof(*sqe));
		sqe->opcode = IORING_OP_NOP;
		if (load->blocks) {
			uint64_t random = next_random(load);

			sqe->opcode = IORING_OP_READ;
			sqe->flags = IOSQE_FIXED_FILE;
			sqe->addr = (uintptr_t)buffers[random % DEPTH];
			sqe->len = BLOCK_BYTES;
			sqe->off = (random >> 8) % load->blocks * BLOCK_BYTES;
		}
	}
	__atomic_store_n(load->sq_tail, tail, __ATOMIC_RELEASE);
	load->in_flight = DEPTH;
	return queued;
}

static void enter(struct load *load, unsigned int submitted, unsigned int flags)
{
	unsigned int wait = flags & IORING_ENTER_GETEVENTS ? 1 : 0;

	while (syscall(SYS_io_uring_enter, load->fd, submitted, wait, flags, NULL, 0) < 0) {
		if (errno != EINTR)
			die("io_uring_enter");
	}
}

/* Submit what is queued, wait for at least one completion, and consume all there are. */
static unsigned int complete(struct load *load, unsigned int queued)
{
	unsigned int head = *load->cq_head, completed = 0, tail;

	if (load->flags & IORING_SETUP_SQPOLL) {
		/* The thread announces that it falls asleep before it looks at the tail again. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(load->sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP)
			enter(load, queued, IORING_ENTER_SQ_WAKEUP);
		while (head == __atomic_load_n(load->cq_tail, __ATOMIC_ACQUIRE))
			relax();
	} else {
		enter(load, queued, IORING_ENTER_GETEVENTS);
	}
	tail = __atomic_load_n(load->cq_tail, __ATOMIC_ACQUIRE);
	for (; head != tail; head++, completed++) {
		int result = load->cqes[head & load->cq_mask].res;

		if (result < 0) {
			errno = -result;
			die("operation");
		}
	}
	__atomic_store_n(load->cq_head, head, __ATOMIC_RELEASE);
	load->in_flight -= completed;
	return completed;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Operations per second in a window. */
static double run(struct load *load, double seconds)
{
	uint64_t done = 0, checked = 0;
	double began = now(), elapsed;

	do {
		while (done - checked < CLOCK_INTERVAL)
			done += complete(load, fill(load));
		checked = done;
		elapsed = now() - began;
	} while (elapsed < seconds);
	while (load->in_flight)
		complete(load, 0);
	return (double)done / elapsed;
}

int main(int argc, char **argv)
{
	struct load load = { .random = 0x853c49e6748fea9b };
	double best = 0, seconds;

	if (argc != 5 || (strcmp(argv[1], "nop") && strcmp(argv[1], "read")) ||
	    (strcmp(argv[2], "enter") && strcmp(argv[2], "sqpoll"))) {
		fprintf(stderr, "usage: workload-uring nop|read enter|sqpoll MILLISECONDS FILE\n");
		return 2;
	}
	setup(&load, !strcmp(argv[2], "sqpoll"));
	if (!strcmp(argv[1], "read"))
		open_file(&load, argv[4]);
	seconds = atof(argv[3]) / 1000 / WINDOWS;
	for (int i = 0; i < WINDOWS; i++) {
		double rate = run(&load, seconds);

		if (rate > best)
			best = rate;
	}
	printf("rate=%.0f\n", best);
	return 0;
}
