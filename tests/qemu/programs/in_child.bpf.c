// SPDX-License-Identifier: GPL-2.0-only
// At a function that a forked child enters, and the process that makes the calls does not.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 exits;

SEC("fentry/do_group_exit")
int BPF_PROG(on_exit, int status)
{
	__sync_fetch_and_add(&exits, 1);
	return 0;
}
