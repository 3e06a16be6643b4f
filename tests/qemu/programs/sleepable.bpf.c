// SPDX-License-Identifier: GPL-2.0-only
// May sleep while it copies the caller's memory.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

char last[16];

SEC("fentry.s/__x64_sys_write")
int BPF_PROG(on_write, const struct pt_regs *registers)
{
	bpf_copy_from_user(last, sizeof(last), (const void *)registers->si);
	return 0;
}
