/*
 * contend CALLS [chmod]: opens /tmp/contend/file CALLS times, by four processes on one CPU, of which one is
 * SCHED_IDLE, beside a process on that CPU that updates a BPF map. Prints how many opens were made: the idle process
 * stops when the others have ended. With `chmod` changes the mode of the file instead, and counts what is not denied.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define ENTRIES	  4
/* The longer an update takes, the more often it is preempted. */
#define VALUE_BYTES 32768
/* The user that the rules name. */
#define USER 1001

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static void update_map(void)
{
	static char value[VALUE_BYTES];
	union bpf_attr make = {
		.map_type = BPF_MAP_TYPE_HASH,
		.key_size = sizeof(int),
		.value_size = sizeof(value),
		.max_entries = ENTRIES,
	};
	long map = bpf(BPF_MAP_CREATE, &make);
	int key = 0;

	if (map < 0) {
		perror("contend: cannot create a map");
		exit(1);
	}
	for (;; key = (key + 1) % ENTRIES) {
		union bpf_attr update = {
			.map_fd = map,
			.key = (unsigned long)&key,
			.value = (unsigned long)value,
		};

		bpf(BPF_MAP_UPDATE_ELEM, &update);
	}
}

/* Opens the file; returns 1 if that was done. */
static int opens(void)
{
	int file = open("/tmp/contend/file", O_RDONLY);

	if (file < 0)
		_exit(1);
	close(file);
	return 1;
}

/* Changes the mode of the file; returns 1 if that was done, 0 if it was denied. */
static int changes_mode(void)
{
	if (!chmod("/tmp/contend/file", 0600))
		return 1;
	if (errno != EPERM)
		_exit(1);
	return 0;
}

int main(int count, char **words)
{
	int (*done)(void) = count == 3 && !strcmp(words[2], "chmod") ? changes_mode : opens;
	long calls = count >= 2 ? atol(words[1]) / PROCESSES : 0;
	volatile long *made;
	volatile int *ended;
	struct sched_param none = { 0 };
	pid_t updater, opener[PROCESSES];
	cpu_set_t first;
	long sum = 0;

	made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!calls || made == MAP_FAILED)
		return 1;
	ended = (volatile int *)&made[PROCESSES];
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		return 1;
	updater = fork();
	if (!updater)
		update_map();
	for (int i = 0; i < PROCESSES; i++) {
		opener[i] = fork();
		if (opener[i])
			continue;
		if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
			_exit(1);
		if (!i && sched_setscheduler(0, SCHED_IDLE, &none))
			_exit(1);
		for (long call = 0; call < calls && (i || !*ended); call++)
			made[i] += done();
		_exit(0);
	}
	for (int i = PROCESSES - 1; i >= 0; i--) {
		int status;

		if (!i)
			*ended = 1;
		if (waitpid(opener[i], &status, 0) < 0 || status)
			return 1;
		sum += made[i];
	}
	kill(updater, SIGKILL);
	waitpid(updater, NULL, 0);
	printf("%ld\n", sum);
	return 0;
}
