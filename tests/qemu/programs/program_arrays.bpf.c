// SPDX-License-Identifier: GPL-2.0-only
// Two programs that go on in another one, which is attached nowhere: by an array that its file pins, and by one that it
// does not.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

volatile __u64 sum;

SEC("kprobe")
int target(void *registers)
{
	for (int i = 0; i < 50; i++) {
		sum += i;
		asm volatile("" ::: "memory");
	}
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} tails SEC(".maps") = {.values = {[0] = (void *)&target}};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__array(values, int(void *));
} pinned_tails SEC(".maps") = {.values = {[0] = (void *)&target}};

SEC("kprobe/vfs_read")
int jumper(void *registers)
{
	bpf_tail_call(registers, &tails, 0);
	return 0;
}

SEC("kprobe/vfs_read")
int pinned(void *registers)
{
	bpf_tail_call(registers, &pinned_tails, 0);
	return 0;
}
