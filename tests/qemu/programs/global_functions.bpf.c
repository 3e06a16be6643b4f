// SPDX-License-Identifier: GPL-2.0-only
// Calls functions that the verifier checks by themselves, one of which calls the other.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

__noinline int rest(__u64 number, int by)
{
	return by ? number % (__u32)by : 0;
}

__noinline int odd(__u64 number)
{
	volatile char room[64] = {};

	room[number & 63] = 1;
	return rest(number, 2) + room[3];
}

SEC("tp/syscalls/sys_enter_getppid")
int on_getppid(void *context)
{
	return odd(bpf_get_current_pid_tgid()) > 1;
}
