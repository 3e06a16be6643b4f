// SPDX-License-Identifier: GPL-2.0-only
// Asks a socket for the flags of the loopback device.
#include "sockets.h"
#include "workload.h"

static struct {
	char name[16];
	char other[24];
} device = {.name = "lo"};	// struct ifreq of <linux/if.h>
static long fd;

void workload_setup(void)
{
	fd = sys3(SYS_socket, AF_INET, SOCK_DGRAM, 0);
}

void workload(void)
{
	sys3(SYS_ioctl, fd, SIOCGIFFLAGS, &device);
}
