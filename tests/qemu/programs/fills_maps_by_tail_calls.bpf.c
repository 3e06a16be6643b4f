// SPDX-License-Identifier: GPL-2.0-only
// Each read goes on in a program that fills a map, or in none.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} nowhere SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(tail_call_to_nobody)
{
	bpf_tail_call(ctx, &nowhere, 0);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
} full_of_callee SEC(".maps");

SEC("kprobe")
int callee(void *registers)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&full_of_callee, &now, &now, BPF_ANY);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} parts SEC(".maps") = {.values = {[0] = (void *)&callee}};

SEC("kprobe/vfs_read")
int callee_fills_hash(void *registers)
{
	bpf_tail_call(registers, &parts, 0);
	return 0;
}
