// SPDX-License-Identifier: GPL-2.0-only
// Counts reads by process. As in many libbpf tools, the program that loads it decides how many there may be.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 only_pid = 0;	/* 0: all; set before loading */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	/* max_entries: bpf_map__set_max_entries() of the tool */
} reads SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(on_read)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 first = 1, *count;

	if (only_pid && only_pid != pid)
		return 0;
	count = bpf_map_lookup_elem(&reads, &pid);
	if (count)
		*count += 1;
	else
		bpf_map_update_elem(&reads, &pid, &first, BPF_ANY);
	return 0;
}
