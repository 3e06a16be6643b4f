// SPDX-License-Identifier: GPL-2.0-only
// The verifier refuses a program that another one goes on in.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("kprobe")
int target(void *registers)
{
	return *(int *)(long)bpf_ktime_get_ns();
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} tails SEC(".maps") = {.values = {[0] = (void *)&target}};

SEC("kprobe/vfs_read")
int jumper(void *registers)
{
	bpf_tail_call(registers, &tails, 0);
	return 0;
}

SEC("kprobe/vfs_read")
int alone(void *registers)
{
	return 0;
}
