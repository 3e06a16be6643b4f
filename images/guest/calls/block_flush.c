// SPDX-License-Identifier: GPL-2.0-only
// Makes a disk write its cache back.
#include "memory_disk.h"
#include "workload.h"

static long fd;

void workload_setup(void)
{
	struct memory_disk disk = make_memory_disk("lab-flush");

	fd = sys2(SYS_open, disk.device, O_RDWR);
}

void workload(void)
{
	sys1(SYS_fsync, fd);
}
