// SPDX-License-Identifier: GPL-2.0-only
// Sends a file descriptor over a pair of Unix sockets, receives it, and closes the copy.
#include "sockets.h"
#include "workload.h"

enum { SCM_RIGHTS = 1 };

struct control {	// struct cmsghdr and its data
	size_t size;
	int level, type;
	int fd;
};

static int ends[2];
static char byte;
static struct vector vector = {&byte, 1};

void workload_setup(void)
{
	sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
}

void workload(void)
{
	struct control control = {offsetof(struct control, fd) + sizeof(int), SOL_SOCKET, SCM_RIGHTS, 0};
	struct message message = {
		.vectors = &vector, .vector_count = 1, .control = &control, .control_size = sizeof(control)
	};

	sys3(SYS_sendmsg, ends[0], &message, 0);
	sys3(SYS_recvmsg, ends[1], &message, 0);
	sys1(SYS_close, control.fd);
}
