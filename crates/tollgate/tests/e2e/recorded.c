// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into auditd, gives it recorded messages in place of the kernel's: each packet of standard input
 * is one, netlink header and all. What libaudit and auditd do with them is their own. At the end of the
 * input auditd is asked to end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static int records = -1;

/* auditd closes its standard input. */
__attribute__((constructor)) static void keep(void)
{
	records = dup(STDIN_FILENO);
}

int audit_open(void)
{
	return records;
}

/* There is no kernel to tell. */
int audit_set_pid(int fd, unsigned int pid, int mode)
{
	(void)fd;
	(void)pid;
	(void)mode;
	return 1;
}

/* Nor does one know who has sent the signal. */
int audit_request_signal_info(int fd)
{
	(void)fd;
	return -1;
}

ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *from,
		 socklen_t *from_size)
{
	static ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t received;

	if (!next)
		next = (ssize_t(*)(int, void *, size_t, int, struct sockaddr *, socklen_t *))dlsym(
			RTLD_NEXT, "recvfrom");
	if (fd != records)
		return next(fd, buffer, size, flags, from, from_size);
	received = next(fd, buffer, size, flags, NULL, NULL);
	if (!received) {
		raise(SIGTERM);
		errno = EAGAIN;
		return -1;
	}
	*(struct sockaddr_nl *)from = (struct sockaddr_nl){ .nl_family = AF_NETLINK };
	*from_size = sizeof(struct sockaddr_nl);
	return received;
}
