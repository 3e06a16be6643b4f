// SPDX-License-Identifier: GPL-2.0-only
// One program of the file prints, and the kernel then enables its event: that changes text of the kernel's.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 reads;

SEC("kprobe/vfs_read")
int prints(void *registers)
{
	bpf_printk("read by %d\n", (int)bpf_get_current_pid_tgid());
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(counts)
{
	__sync_fetch_and_add(&reads, 1);
	return 0;
}
