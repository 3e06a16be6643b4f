// SPDX-License-Identifier: GPL-2.0-only
// At functions and tracepoints that tools attach to: a guest is asked for the calls that reach them.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

__u64 hits;

#define AT(name, section)                        \
	SEC(section)                             \
	int name(void *context)                  \
	{                                        \
		__sync_fetch_and_add(&hits, 1);  \
		return 0;                        \
	}

AT(on_ioctl, "kprobe/sock_do_ioctl")
AT(on_dump, "kprobe/netlink_dump")
AT(on_capable, "kprobe/cap_capable")
AT(on_retransmission, "tp/tcp/tcp_retransmit_skb")
AT(on_reset, "tp/tcp/tcp_send_reset")
