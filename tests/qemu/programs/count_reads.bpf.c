// SPDX-License-Identifier: GPL-2.0-only
// Counts the reads of each CPU: what does an fentry program with a per-CPU map add to vfs_read()?
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reads SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(count_reads, struct file *file, char *buffer, size_t size)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&reads, &key);

	if (count)
		*count += 1;
	return 0;
}
