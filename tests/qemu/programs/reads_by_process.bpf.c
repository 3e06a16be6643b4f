// SPDX-License-Identifier: GPL-2.0-only
// Counts the reads of each process; a read of a file that is not open for reading is not one.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} reads SEC(".maps");

SEC("kprobe/vfs_read")
int BPF_KPROBE(on_read, struct file *file)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32;
	__u64 one = 1, *count = bpf_map_lookup_elem(&reads, &process);

	if (!(BPF_CORE_READ(file, f_mode) & 1))
		return 0;
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&reads, &process, &one, BPF_ANY);
	return 0;
}
