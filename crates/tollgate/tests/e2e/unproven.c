// Calls that a program hides from, or forges for, an observer of tracepoints.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                             \
	do {                                                                         \
		if (!(condition)) {                                                  \
			fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)); \
			exit(1);                                                     \
		}                                                                    \
	} while (0)

/* A filter answers mkdir with 0. */
static int filtered(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

	CHECK(!syscall(SYS_mkdir, "made", 0700));
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	CHECK(!syscall(SYS_mkdir, "filtered", 0700));
	CHECK(access("filtered", F_OK));
	return 0;
}

static int stopped(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSTOPPED(status));
	return status >> 8;
}

/* A tracer answers mkdir with 0. */
static int emulated(void)
{
	pid_t child = fork();
	struct user_regs_struct regs;

	if (!child) {
		char name[] = "emulated"; /* in memory: the kernel does not read it */

		CHECK(!ptrace(PTRACE_TRACEME, 0, 0, 0));
		raise(SIGSTOP);
		syscall(SYS_mkdir, name, 0700);
		pause();
	}
	stopped(child);
	do {
		CHECK(!ptrace(PTRACE_SYSEMU, child, 0, 0));
		stopped(child);
		CHECK(!ptrace(PTRACE_GETREGS, child, 0, &regs));
		regs.rax = 0;
		CHECK(!ptrace(PTRACE_SETREGS, child, 0, &regs));
	} while (regs.orig_rax != SYS_mkdir);
	do {
		CHECK(!ptrace(PTRACE_SYSEMU, child, 0, 0));
		stopped(child);
		CHECK(!ptrace(PTRACE_GETREGS, child, 0, &regs));
	} while (regs.orig_rax == SYS_mkdir);
	CHECK(!kill(child, SIGKILL));
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(access("emulated", F_OK));
	return 0;
}

static void handler(int signal)
{
	(void)signal;
}

static int signalled(void)
{
	CHECK(signal(SIGUSR1, handler) != SIG_ERR);
	return raise(SIGUSR1);
}

/* A tracer changes the number of exit_group in the dying task, and leaves it. */
static int renumbered(void)
{
	pid_t child = fork();

	if (!child) {
		CHECK(!ptrace(PTRACE_TRACEME, 0, 0, 0));
		raise(SIGSTOP);
		syscall(SYS_exit_group, 0);
	}
	stopped(child);
	CHECK(!ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEEXIT));
	CHECK(!ptrace(PTRACE_CONT, child, 0, 0));
	CHECK(stopped(child) == (SIGTRAP | PTRACE_EVENT_EXIT << 8));
	CHECK(!ptrace(PTRACE_POKEUSER, child, offsetof(struct user_regs_struct, orig_rax),
		      SYS_getpid));
	CHECK(!ptrace(PTRACE_DETACH, child, 0, 0));
	CHECK(waitpid(child, NULL, 0) == child);
	printf("%d\n", child);
	return 0;
}

/* One thread is killed by the exit_group of another. */
static void *sleeping(void *nothing)
{
	pause();
	return nothing;
}

static int threaded(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, sleeping, NULL));
	syscall(SYS_exit_group, 3);
	return 1;
}

static int wanted;
static volatile int replacing_now;
static volatile int done;

static void *replacing(void *from)
{
	while (!done)
		replacing_now = dup2(*(int *)from, wanted) == wanted;
	return NULL;
}

/* Opens a file for writing; another thread replaces the descriptor as soon as it exists. */
static int replaced(const char *path, int times)
{
	int other = open("/dev/null", O_RDONLY);
	pthread_t thread;

	wanted = dup(other); /* the lowest free one: open() returns it if it is closed */
	CHECK(other >= 0 && wanted >= 0);
	CHECK(!pthread_create(&thread, NULL, replacing, &other));
	while (!replacing_now)
		sched_yield();
	for (int i = 0; i < times; i++) {
		int fd;

		close(wanted);
		fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
		CHECK(fd >= 0);
		if (fd != wanted)
			close(fd);
	}
	done = 1;
	CHECK(!pthread_join(thread, NULL));
	return 0;
}

/* Opens a symbolic link in a process with two threads. */
static int linked(const char *path)
{
	pthread_t thread;
	int fd;

	CHECK(!pthread_create(&thread, NULL, sleeping, NULL));
	fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
	CHECK(fd >= 0);
	fd = syscall(SYS_openat, AT_FDCWD, ".././work//", O_RDONLY);
	CHECK(fd >= 0);
	return 0;
}

/* Objects of calls with more than four arguments, or in another name space. */
static int objects(const char *path)
{
	struct timespec soon = { 0, 0 };
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	int notify = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
	mqd_t queue;

	printf("%d\n", fanotify_mark(notify, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, path));
	queue = mq_open("/tollgate-e2e", O_CREAT | O_RDWR, 0600, &attr);
	if (queue >= 0) {
		mq_timedsend(queue, "text", 4, 0, &soon);
		mq_unlink("/tollgate-e2e");
	}
	return 0;
}

/* A socket address as input, and one as output. */
static int addressed(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!getpeername(fd, (struct sockaddr *)&address, &len));
	CHECK(connect(-1, (struct sockaddr *)&address, sizeof(address)) < 0);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "filtered"))
		return filtered();
	if (!strcmp(what, "emulated"))
		return emulated();
	if (!strcmp(what, "signalled"))
		return signalled();
	if (!strcmp(what, "renumbered"))
		return renumbered();
	if (!strcmp(what, "threaded"))
		return threaded();
	if (!strcmp(what, "addressed"))
		return addressed();
	if (argc == 4 && !strcmp(what, "replaced"))
		return replaced(argv[2], atoi(argv[3]));
	if (argc == 3 && !strcmp(what, "linked"))
		return linked(argv[2]);
	if (argc == 3 && !strcmp(what, "objects"))
		return objects(argv[2]);
	return 2;
}
