// SPDX-License-Identifier: GPL-2.0-only
// Asks for all routing rules of IPv4.
#include "route_netlink.h"
#include "workload.h"

#ifdef __i386__
#define RECEIVE SYS_recvmmsg_time64
#else
#define RECEIVE SYS_recvmmsg
#endif

enum { WAIT_FOR_ONE = 0x10000 };	// MSG_WAITFORONE

static const struct {
	struct nlmsghdr header;
	struct rtmsg rule;
} request = {
	.header = {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETRULE, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	.rule = {.rtm_family = AF_INET},
};
static char data[16384], end[256];
static struct vector vectors[] = {{data, sizeof(data)}, {end, sizeof(end)}};
static struct {	// struct mmsghdr
	struct message message;
	unsigned int size;
} answers[] = {
	{.message = {.vectors = &vectors[0], .vector_count = 1}},
	{.message = {.vectors = &vectors[1], .vector_count = 1}},
};
static long fd;

void workload_setup(void)
{
	fd = route_socket();
}

void workload(void)
{
	send_request(fd, &request.header);
	// The end of the dump is a second message, or, on Linux 7.3, in the first one.
	sys5(RECEIVE, fd, answers, 2, WAIT_FOR_ONE, 0);
}
