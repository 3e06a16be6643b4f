// SPDX-License-Identifier: GPL-2.0-only
// Sends a record of each file that is opened through a ring buffer, as opensnoop does.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct opened {
	__u32 process;
	char command[16];
	char file[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

SEC("fentry/do_sys_openat2")
int BPF_PROG(on_open, int directory, const char *file)
{
	struct opened *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return 0;
	event->process = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(event->command, sizeof(event->command));
	bpf_probe_read_user_str(event->file, sizeof(event->file), file);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}
