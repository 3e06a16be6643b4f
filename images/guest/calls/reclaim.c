// SPDX-License-Identifier: GPL-2.0-only
// Reads 16 pages of a disk in a memory cgroup, and has as many pages of its cache reclaimed.
#include "file_advice.h"
#include "memory_disk.h"
#include "workload.h"

#define GROUPS "/tmp/lab-groups"
#define RECLAIMED "64K"

enum { READ = 16 * BLOCK, FILE_SIZE = 64 * READ };

static char bytes[READ];
static long fd, reclaim;

void workload_setup(void)
{
	sys2(SYS_mkdir, GROUPS, 0700);
	sys5(SYS_mount, "none", GROUPS, "cgroup2", 0, 0);
	write_setting(GROUPS, "/cgroup.subtree_control", "+memory");
	sys2(SYS_mkdir, GROUPS "/reading", 0700);
	write_setting(GROUPS, "/reading/memory.swap.max", "0");	// the process's memory stays
	write_setting(GROUPS, "/reading/cgroup.procs", "0");
	reclaim = sys2(SYS_open, GROUPS "/reading/memory.reclaim", O_WRONLY);
	fd = sys2(SYS_open, EMPTY_DISK, O_RDONLY);
	advise(fd, ADVICE_RANDOM);	// no page more than is read
}

void workload(void)
{
	static long at;

	at = (at + READ) % FILE_SIZE;
	sys5(SYS_pread64, fd, bytes, READ, at, 0);
	sys3(SYS_write, reclaim, RECLAIMED, sizeof(RECLAIMED) - 1);
}
