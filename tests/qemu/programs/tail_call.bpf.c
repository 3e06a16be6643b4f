// SPDX-License-Identifier: GPL-2.0-only
// Goes on in another program, which is attached nowhere.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 passed;

SEC("kprobe")
int counted(struct pt_regs *registers)
{
	__sync_fetch_and_add(&passed, 1);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct pt_regs *));
} parts SEC(".maps") = {.values = {[0] = (void *)&counted}};

SEC("kprobe/vfs_read")
int first(struct pt_regs *registers)
{
	bpf_tail_call(registers, &parts, 0);
	return 0;
}
