// SPDX-License-Identifier: GPL-2.0-only
// Programs at a read that leave it early: all hits, or none.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

const volatile bool enabled = false;
const volatile __u64 most_bytes = 1 << 20;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} starts SEC(".maps");

__u64 reads, most;

SEC("fentry/vfs_read")
int BPF_PROG(switched_off)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (!enabled)
		return 0;
	if (bpf_map_lookup_elem(&starts, &pid))
		reads += 1;
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(filters, struct file *file, char *buffer, size_t size)
{
	if (size < most_bytes)
		return 0;
	reads += 1;
	most = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(finds_nothing)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 *start = bpf_map_lookup_elem(&starts, &pid);

	if (!start)
		return 0;
	most = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&starts, &pid);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(does_its_work)
{
	__u64 now = bpf_ktime_get_ns();

	reads += 1;
	if (now < most)
		most = now;
	return 0;
}
