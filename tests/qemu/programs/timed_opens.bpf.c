// SPDX-License-Identifier: GPL-2.0-only
// As opensnoop does it: the entry keeps what the exit reports. Alone, the exit finds nothing and leaves at once.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct began {
	const char *name;
	__u64 at;
};

struct opened {
	__u64 took;
	__u32 pid;
	int result;
	char name[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct began);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

SEC("tp/syscalls/sys_enter_openat")
int on_enter(struct trace_event_raw_sys_enter *context)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct began began = {(const char *)context->args[1], bpf_ktime_get_ns()};

	bpf_map_update_elem(&begun, &thread, &began, BPF_ANY);
	return 0;
}

SEC("tp/syscalls/sys_exit_openat")
int on_exit(struct trace_event_raw_sys_exit *context)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct began *began = bpf_map_lookup_elem(&begun, &thread);
	struct opened *opened;

	if (!began)
		return 0;
	opened = bpf_ringbuf_reserve(&events, sizeof(*opened), 0);
	if (opened) {
		opened->took = bpf_ktime_get_ns() - began->at;
		opened->pid = bpf_get_current_pid_tgid() >> 32;
		opened->result = context->ret;
		bpf_probe_read_user_str(opened->name, sizeof(opened->name), began->name);
		bpf_ringbuf_submit(opened, BPF_RB_NO_WAKEUP);
	}
	bpf_map_delete_elem(&begun, &thread);
	return 0;
}

SEC("tp/syscalls/sys_enter_unlinkat")
int on_unlink(struct trace_event_raw_sys_enter *context)
{
	return 0;
}
