// SPDX-License-Identifier: GPL-2.0-only
// Reads memory of a process, its own, by process_vm_readv().
#include "workload.h"

static char from[64], to[64];
static const struct {
	void *base;
	size_t size;
} local = {to, sizeof(to)}, remote = {from, sizeof(from)};	// struct iovec
static long pid;

void workload_setup(void)
{
	pid = sys0(SYS_getpid);
}

void workload(void)
{
	sys6(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
}
