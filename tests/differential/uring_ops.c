/*
 * uring_ops MODE: io_uring operations that end in unusual ways. Fails unless each has the expected result.
 *
 *   send FILE SECRET DIRECTORY   sends a page of a mapped file, then makes syscalls
 *   open FILE SECRET DIRECTORY   opens the file, then makes syscalls
 *   cancelled_connect            connects and cancels that, in one submission
 *   polled_connect               the same, by the polling thread
 *   abandoned_connect            connects in a child that exits at once
 *   delayed_connect              connects when the listener has room
 *   dont_wait                    sends to a full socket and receives from an empty one, with MSG_DONTWAIT
 *   exec_cancelled FILE PROGRAM  executes a program, which cancels a poll before an open of a file that is refused
 *   failed_exec TEXT FILE NAME   the same open at the end of an exec that fails, then an exec of a missing file
 *   leased NAME                  makes a file until that fails because another process has leased the new file
 *   upper_bits FILE              opens a file; the register of the syscall number has other upper bits
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES	   8
#define PAGE_BYTES 4096
/* -EAGAIN and -ECANCELED */
#define AGAIN	  (-11)
#define CANCELLED (-125)
/* Seconds after which a connection has failed. */
#define PATIENCE 30
/* The kernel ignores the upper half of the register. */
#define UPPER_BITS (0x7fL << 32)

static int ring, to_submit;
static unsigned *submitted, *reaped;
static struct io_uring_sqe *entries;
static struct io_uring_cqe *completions;

static void expect(const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	fprintf(stderr, "uring_ops: %s: %ld, not %ld\n", what, got, wanted);
	exit(1);
}

static void open_ring(unsigned flags)
{
	struct io_uring_params parameters = { .flags = flags };
	unsigned *list;
	char *rings;

	ring = syscall(SYS_io_uring_setup, ENTRIES, &parameters);
	expect("io_uring_setup", ring < 0, 0);
	rings = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		     IORING_OFF_SQ_RING);
	entries = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	expect("mmap", rings == MAP_FAILED || (void *)entries == MAP_FAILED, 0);
	submitted = (unsigned *)(rings + parameters.sq_off.tail);
	reaped = (unsigned *)(rings + parameters.cq_off.head);
	completions = (struct io_uring_cqe *)(rings + parameters.cq_off.cqes);
	list = (unsigned *)(rings + parameters.sq_off.array);
	for (unsigned i = 0; i < ENTRIES; i++)
		list[i] = i;
}

/* The next operation; `id` tells its completion. */
static struct io_uring_sqe *operation(int code, int fd, uint64_t id)
{
	struct io_uring_sqe *entry = &entries[*submitted + to_submit++];

	memset(entry, 0, sizeof(*entry));
	entry->opcode = code;
	entry->fd = fd;
	entry->user_data = id;
	return entry;
}

/* Submits the operations and waits for so many completions. */
static void submit(long number, int completed)
{
	int flags = IORING_ENTER_SQ_WAKEUP | (completed ? IORING_ENTER_GETEVENTS : 0),
	    count = to_submit;
	register long arg4 asm("r10") = flags;
	register long arg5 asm("r8") = 0;
	register long arg6 asm("r9") = 0;
	long result;

	to_submit = 0;
	__atomic_store_n(submitted, *submitted + count, __ATOMIC_RELEASE);
	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"((long)ring), "S"((long)count), "d"((long)completed),
		       "r"(arg4), "r"(arg5), "r"(arg6)
		     : "rcx", "r11", "memory");
	expect("io_uring_enter", result, count);
}

/* Takes the next completion. */
static int result_of(uint64_t id)
{
	struct io_uring_cqe *completion = &completions[(*reaped)++];

	expect("user_data", completion->user_data, id);
	return completion->res;
}

/* Tells that a step is done and waits for a byte; returns 0 at the end of the input. */
static int next_step(void)
{
	char byte = 0;

	expect("write", write(STDOUT_FILENO, &byte, 1), 1);
	return read(STDIN_FILENO, &byte, 1);
}

/* Runs an operation that waits for the server of a file, then makes syscalls at each step. */
static void run_then_work(int code, char **words)
{
	const char *file = words[0], *secret = words[1], *directory = words[2];
	int fd = open(file, O_RDONLY), pair[2];
	char *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0), name[256];
	struct iovec part = { page, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct io_uring_sqe *entry;

	expect("mmap of the file", page == MAP_FAILED, 0);
	expect("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(name, sizeof(name), "%s/new", directory);
	open_ring(0);
	expect("next step", next_step(), 1);
	entry = operation(code, code == IORING_OP_OPENAT ? AT_FDCWD : pair[0], 1);
	entry->addr = code == IORING_OP_OPENAT ? (uint64_t)file : (uint64_t)&message;
	submit(SYS_io_uring_enter, 1);
	expect("the operation fails", result_of(1) < 0, 0);
	while (next_step()) {
		fd = open(secret, O_RDWR);
		expect("open", fd < 0 || close(fd), 0);
		expect("chmod", chmod(secret, 0644), 0);
		expect("mkdir", mkdir(name, 0755), 0);
		expect("rmdir", rmdir(name), 0);
		expect("truncate", truncate(secret, 1), 0);
	}
}

/* A listener that takes no further connection before accept(): one waits already. */
static int full_listener(struct sockaddr_in *address)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), filler = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t bytes = sizeof(*address);

	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	expect("bind", bind(listener, (struct sockaddr *)address, bytes), 0);
	expect("listen", listen(listener, 0), 0);
	expect("getsockname", getsockname(listener, (struct sockaddr *)address, &bytes), 0);
	expect("connect", connect(filler, (struct sockaddr *)address, bytes), 0);
	alarm(PATIENCE);
	return listener;
}

/* Takes connections up to that of a socket. */
static void accept_until(int listener, int socket)
{
	struct sockaddr_in own, peer;
	socklen_t bytes = sizeof(own);

	expect("getsockname", getsockname(socket, (struct sockaddr *)&own, &bytes), 0);
	do
		expect("accept", accept(listener, (struct sockaddr *)&peer, &bytes) < 0, 0);
	while (peer.sin_port != own.sin_port);
}

static void connect_operation(int socket, const struct sockaddr_in *address)
{
	struct io_uring_sqe *entry = operation(IORING_OP_CONNECT, socket, 1);

	entry->addr = (uint64_t)address;
	entry->off = sizeof(*address);
}

/* The connection is made although the operation is cancelled. */
static void cancelled_connect(unsigned setup_flags)
{
	struct sockaddr_in address;
	int listener = full_listener(&address), client = socket(AF_INET, SOCK_STREAM, 0);

	open_ring(setup_flags);
	connect_operation(client, &address);
	operation(IORING_OP_ASYNC_CANCEL, -1, 2)->addr = 1;
	submit(SYS_io_uring_enter, 2);
	expect("cancel", result_of(2), 0);
	expect("connect", result_of(1), CANCELLED);
	accept_until(listener, client);
}

/* The connection is made although the submitter is gone. */
static void abandoned_connect(void)
{
	struct sockaddr_in address;
	int listener = full_listener(&address), client = socket(AF_INET, SOCK_STREAM, 0), status;

	if (!fork()) {
		open_ring(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
		connect_operation(client, &address);
		submit(SYS_io_uring_enter, 0);
		_exit(0);
	}
	expect("wait", wait(&status) < 0 || status, 0);
	accept_until(listener, client);
}

static void delayed_connect(void)
{
	struct sockaddr_in address;
	int listener = full_listener(&address), client = socket(AF_INET, SOCK_STREAM, 0);

	open_ring(0);
	connect_operation(client, &address);
	submit(SYS_io_uring_enter, 0);
	accept_until(listener, client);
	submit(SYS_io_uring_enter, 1);
	expect("connect", result_of(1), 0);
}

static void dont_wait(void)
{
	static char bytes[PAGE_BYTES];
	struct iovec part = { bytes, sizeof(bytes) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int pair[2];

	expect("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	while (send(pair[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	open_ring(0);
	for (int i = 0; i < 2; i++) {
		int code = i ? IORING_OP_RECVMSG : IORING_OP_SENDMSG;
		struct io_uring_sqe *entry = operation(code, pair[0], 1);

		entry->addr = (uint64_t)&message;
		entry->msg_flags = MSG_DONTWAIT;
		submit(SYS_io_uring_enter, 1);
		expect(i ? "recvmsg" : "sendmsg", result_of(1), AGAIN);
	}
}

/* Whether operations that open are openat2. */
static int by_openat2;

/* A poll of a descriptor, then an open of a file for writing. */
static void open_after(int fd, unsigned link, const char *file)
{
	struct io_uring_sqe *entry = operation(IORING_OP_POLL_ADD, fd, 1);

	entry->poll32_events = POLLIN;
	entry->flags = link;
	entry = operation(IORING_OP_OPENAT, AT_FDCWD, 2);
	entry->addr = (uint64_t)file;
	entry->open_flags = O_WRONLY;
	if (by_openat2) {
		static struct open_how how = { .flags = O_WRONLY };

		entry->opcode = IORING_OP_OPENAT2;
		entry->open_flags = 0;
		entry->off = (uint64_t)&how;
		entry->len = sizeof(how);
	}
	submit(SYS_io_uring_enter, 0);
}

static char *one_word[] = { "word", NULL };

static void exec_cancelled(const char *refused, const char *program)
{
	int events = eventfd(0, 0), status;

	/* The kernel has its access control lists in memory then. */
	access(refused, R_OK);
	open_ring(0);
	if (!fork()) {
		open_after(events, IOSQE_IO_HARDLINK, refused);
		execve(program, one_word, NULL);
		_exit(9);
	}
	expect("wait", wait(&status) < 0, 0);
	expect("status", status, 0);
	expect("poll", result_of(1), CANCELLED);
	expect("open", result_of(2), -EACCES);
}

static void failed_exec(const char *text, const char *refused, const char *missing)
{
	int notes = inotify_init1(0);

	access(refused, R_OK);
	expect("watch", inotify_add_watch(notes, text, IN_OPEN) < 0, 0);
	open_ring(0);
	open_after(notes, IOSQE_IO_LINK, refused);
	expect("exec", execve(text, one_word, NULL), -1);
	expect("exec", errno, ENOEXEC);
	expect("poll", result_of(1) < 0, 0);
	expect("open", result_of(2), -EACCES);
	expect("exec", execve(missing, one_word, NULL), -1);
	expect("exec", errno, ENOENT);
}

/* The exit status is 0 if a file was made by an open that failed, 7 if that does not happen. */
static void leased(const char *name)
{
	time_t end = time(NULL) + 40;
	int child, fd, status;

	signal(SIGIO, SIG_IGN);
	child = fork();
	while (!child) {
		fd = open(name, O_RDONLY);
		if (fd < 0)
			continue;
		fcntl(fd, F_SETLEASE, F_RDLCK);
		close(fd);
	}
	do {
		unlink(name);
		fd = open(name, O_CREAT | O_WRONLY | O_NONBLOCK, 0644);
		if (fd < 0)
			break;
		close(fd);
	} while (time(NULL) < end);
	status = fd < 0 ? errno : 0;
	kill(child, SIGKILL);
	wait(NULL);
	if (!status)
		_exit(7);
	expect("open", status, EAGAIN);
	expect("access", access(name, F_OK), 0);
}

static void upper_bits(const char *file)
{
	open_ring(0);
	operation(IORING_OP_OPENAT, AT_FDCWD, 1)->addr = (uint64_t)file;
	submit(UPPER_BITS | SYS_io_uring_enter, 1);
	expect("the open fails", result_of(1) < 0, 0);
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";

	if (!strcmp(mode, "send") && count == 5)
		run_then_work(IORING_OP_SENDMSG, &words[2]);
	else if (!strcmp(mode, "open") && count == 5)
		run_then_work(IORING_OP_OPENAT, &words[2]);
	else if (!strcmp(mode, "cancelled_connect"))
		cancelled_connect(0);
	else if (!strcmp(mode, "polled_connect"))
		cancelled_connect(IORING_SETUP_SQPOLL);
	else if (!strcmp(mode, "abandoned_connect"))
		abandoned_connect();
	else if (!strcmp(mode, "delayed_connect"))
		delayed_connect();
	else if (!strcmp(mode, "dont_wait"))
		dont_wait();
	else if (!strcmp(mode, "exec_cancelled") && count == 4)
		exec_cancelled(words[2], words[3]);
	else if (!strcmp(mode, "exec_cancelled_2") && count == 4)
		by_openat2 = 1, exec_cancelled(words[2], words[3]);
	else if (!strcmp(mode, "failed_exec") && count == 5)
		failed_exec(words[2], words[3], words[4]);
	else if (!strcmp(mode, "leased") && count == 3)
		leased(words[2]);
	else if (!strcmp(mode, "upper_bits") && count == 3)
		upper_bits(words[2]);
	else
		expect("arguments", count, 0);
	return 0;
}
