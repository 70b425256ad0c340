// SPDX-License-Identifier: Apache-2.0
/*
 * send_login GID AUID: sends user messages to the kernel's audit, as a login program does.
 *
 * Sets its group, so that a rule of the task list can apply to its child. The child sets its login uid, unless
 * AUID is 4294967295, and sends each line of standard input: a message type and a text. The kernel has
 * acknowledged all messages when this program exits.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_LINE 4096

static int fail(const char *what)
{
	fprintf(stderr, "send_login: %s: %s\n", what, strerror(errno));
	return 1;
}

static int set_login_uid(const char *auid)
{
	FILE *file;

	if (!strcmp(auid, "4294967295"))
		return 0;
	file = fopen("/proc/self/loginuid", "w");
	if (!file)
		return -1;
	fputs(auid, file);
	return fclose(file);
}

static int send_message(int fd, int type, const char *text)
{
	static struct {
		struct nlmsghdr header;
		char text[MAX_LINE];
	} message;
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
	} answer;
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	size_t size = strlen(text) + 1;

	message.header.nlmsg_len = NLMSG_LENGTH(size);
	message.header.nlmsg_type = type;
	message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	message.header.nlmsg_seq++;
	memcpy(message.text, text, size);
	if (sendto(fd, &message, message.header.nlmsg_len, 0, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -1;
	if (recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.header))
		return -1;
	errno = answer.header.nlmsg_type == NLMSG_ERROR ? -answer.error.error : EPROTO;
	return errno ? -1 : 0;
}

static int login(const char *auid)
{
	char line[MAX_LINE], *text;
	int fd, type;

	if (set_login_uid(auid))
		return fail("loginuid");
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT);
	if (fd < 0)
		return fail("socket");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		type = strtol(line, &text, 10);
		if (send_message(fd, type, text + (*text == ' ')))
			return fail(line);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int status;
	pid_t child;

	if (argc != 3)
		return 2;
	if (setgid(atoi(argv[1])))
		return fail("setgid");
	child = fork();
	if (child < 0)
		return fail("fork");
	if (!child)
		_exit(login(argv[2]));
	if (waitpid(child, &status, 0) < 0)
		return fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
