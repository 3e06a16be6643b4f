// SPDX-License-Identifier: GPL-2.0-only
// At tracepoints that calls of the lab's hit, by each kind of section: in the calls' process, in a softirq, in other tasks.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 hits;

static int hit(void)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

SEC("tp/sock/inet_sock_set_state")
int on_state(struct trace_event_raw_inet_sock_set_state *context)
{
	return context->newstate == 1 ? hit() : 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_receive, struct sk_buff *packet)
{
	__sync_fetch_and_add(&hits, packet->len);
	return 0;
}

SEC("raw_tp/consume_skb")
int on_consume(struct bpf_raw_tracepoint_args *context)
{
	return hit();
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool is_preempted, struct task_struct *before, struct task_struct *after)
{
	return hit();
}

SEC("tp/sched/sched_process_exit")
int on_exit(void *context)
{
	return hit();
}
