// SPDX-License-Identifier: GPL-2.0-only
// Pairs that time a read: the first program of each keeps when it began, the second one takes that away. Alone, the second
// one finds nothing. All share one map.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum pair { OF_KPROBES, OF_TRAMPOLINES, OF_TRACEPOINTS, PAIRS };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u64);
	__type(value, __u64);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PAIRS);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

static __always_inline __u64 key_of(enum pair pair)
{
	return (bpf_get_current_pid_tgid() << 32) | pair;
}

static __always_inline void begin(enum pair pair)
{
	__u64 key = key_of(pair), now = bpf_ktime_get_ns();

	bpf_map_update_elem(&begun, &key, &now, BPF_ANY);
}

static __always_inline void end(enum pair pair)
{
	__u64 key = key_of(pair), *at = bpf_map_lookup_elem(&begun, &key), *time;
	__u32 which = pair;

	if (!at)
		return;
	time = bpf_map_lookup_elem(&times, &which);
	if (time)
		*time += bpf_ktime_get_ns() - *at;
	bpf_map_delete_elem(&begun, &key);
}

SEC("kprobe/vfs_read")
int kprobe_begins(struct pt_regs *registers)
{
	begin(OF_KPROBES);
	return 0;
}

SEC("kretprobe/vfs_read")
int kretprobe_ends(struct pt_regs *registers)
{
	end(OF_KPROBES);
	return 0;
}

SEC("fentry/ksys_read")
int fentry_begins(__u64 *arguments)
{
	begin(OF_TRAMPOLINES);
	return 0;
}

SEC("fexit/ksys_read")
int fexit_ends(__u64 *arguments)
{
	end(OF_TRAMPOLINES);
	return 0;
}

SEC("tp/syscalls/sys_enter_read")
int event_begins(void *context)
{
	begin(OF_TRACEPOINTS);
	return 0;
}

SEC("tp/syscalls/sys_exit_read")
int event_ends(void *context)
{
	end(OF_TRACEPOINTS);
	return 0;
}

SEC("fentry/ksys_read")
int beside(__u64 *arguments)
{
	return 0;
}
