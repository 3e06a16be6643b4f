// SPDX-License-Identifier: GPL-2.0-only
// Asks for what the kernel knows of the loopback device.
#include "route_netlink.h"
#include "workload.h"

static const struct {
	struct nlmsghdr header;
	struct ifinfomsg device;
} request = {
	.header = {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST},
	.device = {.ifi_index = LOOPBACK_INDEX},
};
static char answer[16384];
static long fd;

void workload_setup(void)
{
	fd = route_socket();
}

void workload(void)
{
	send_request(fd, &request.header);
	sys6(SYS_recvfrom, fd, answer, sizeof(answer), 0, 0, 0);
}
