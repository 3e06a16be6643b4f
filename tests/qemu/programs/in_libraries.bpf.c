// SPDX-License-Identifier: GPL-2.0-only
// Programs in a library of an image, as their sections say.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 allocated;

SEC("uprobe/libc.so.6:malloc")
int BPF_KPROBE(by_name, unsigned long size)
{
	__sync_fetch_and_add(&allocated, size);
	return 0;
}

SEC("uretprobe//lib/x86_64-linux-gnu/libc.so.6:malloc")
int BPF_KRETPROBE(by_path, void *memory)
{
	__sync_fetch_and_add(&allocated, memory != 0);
	return 0;
}
