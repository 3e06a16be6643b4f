// SPDX-License-Identifier: GPL-2.0-only
// At all system calls, at one of them, and at an event that calls do not hit.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("tp/raw_syscalls/sys_enter")
int on_event(void *context)
{
	return 0;
}

SEC("raw_tp/sys_enter")
int on_raw(void *context)
{
	return 0;
}

SEC("kprobe/ksys_read")
int on_read(void *context)
{
	return 0;
}

SEC("?tp/sched/sched_process_exit")
int on_exit(void *context)
{
	return 0;
}
