// SPDX-License-Identifier: GPL-2.0-only
// Adds an address to the loopback device, and removes it.
#include "route_netlink.h"
#include "workload.h"

static struct {
	struct nlmsghdr header;
	struct ifaddrmsg address;
	struct rtattr attribute;
	unsigned char value[4];
} request = {
	.header = {.nlmsg_len = sizeof(request), .nlmsg_flags = NLM_F_REQUEST},
	.address = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = LOOPBACK_INDEX},
	.attribute = {.rta_len = RTA_LENGTH(4), .rta_type = IFA_LOCAL},
	.value = {192, 0, 2, 1},	// for documentation (RFC 5737): nobody has it
};
static long fd;

void workload_setup(void)
{
	set_up_loopback();
	fd = route_socket();
}

void workload(void)
{
	request.header.nlmsg_type = RTM_NEWADDR;
	send_request(fd, &request.header);
	request.header.nlmsg_type = RTM_DELADDR;
	send_request(fd, &request.header);
}
