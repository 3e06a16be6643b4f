// SPDX-License-Identifier: GPL-2.0-only
// Programs that are attached in a workload: as their sections say, or at the point where a section says nothing.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "GPL";

__u64 hits;

SEC("uprobe//tmp/workload:workload")
int BPF_KPROBE(named)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("uprobe")
int BPF_KPROBE(unnamed)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(returns)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("usdt//tmp/workload:lab:passed")
int BPF_USDT(static_named)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("usdt")
int BPF_USDT(static_unnamed)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("uprobe.multi//tmp/workload:workload")
int BPF_KPROBE(many_named)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("uprobe.multi")
int BPF_KPROBE(many_unnamed)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("uretprobe.multi")
int BPF_KRETPROBE(many_returns)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}
