// SPDX-License-Identifier: GPL-2.0-only
// May sleep while it copies the caller's memory.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

char last[16];

SEC("lsm.s/file_open")
int BPF_PROG(on_open, struct file *file)
{
	struct task_struct *task = bpf_get_current_task_btf();

	bpf_copy_from_user(last, sizeof(last), (const void *)task->mm->start_stack);
	return 0;
}
