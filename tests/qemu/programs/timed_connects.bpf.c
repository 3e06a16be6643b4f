// SPDX-License-Identifier: GPL-2.0-only
// As tcpconnlat does it: how long a connection takes from connect() to the answer.
#include "vmlinux.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct connecting {
	__u64 at;
	__u32 pid;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sock *);
	__type(value, struct connecting);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

SEC("fentry/tcp_v4_connect")
int BPF_PROG(on_connect, struct sock *sock)
{
	struct connecting connecting = {bpf_ktime_get_ns(), bpf_get_current_pid_tgid() >> 32};

	bpf_get_current_comm(connecting.name, sizeof(connecting.name));
	bpf_map_update_elem(&begun, &sock, &connecting, BPF_ANY);
	return 0;
}

SEC("fentry/tcp_rcv_state_process")
int BPF_PROG(on_answer, struct sock *sock)
{
	struct connecting *connecting, *event;

	if (BPF_CORE_READ(sock, __sk_common.skc_state) != TCP_SYN_SENT)
		return 0;
	connecting = bpf_map_lookup_elem(&begun, &sock);
	if (!connecting)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (event) {
		*event = *connecting;
		event->at = bpf_ktime_get_ns() - connecting->at;
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	bpf_map_delete_elem(&begun, &sock);
	return 0;
}

SEC("tp/tcp/tcp_destroy_sock")
int on_destroy(struct trace_event_raw_tcp_event_sk *context)
{
	const struct sock *sock = context->skaddr;

	bpf_map_delete_elem(&begun, &sock);
	return 0;
}
