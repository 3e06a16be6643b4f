// SPDX-License-Identifier: GPL-2.0-only
// At functions and tracepoints that tools attach to: a guest is asked for the calls that reach them.
#include "counting_at.h"

AT(on_ioctl, "kprobe/sock_do_ioctl")
AT(on_dump, "kprobe/netlink_dump")
AT(on_capable, "kprobe/cap_capable")
AT(on_retransmission, "tp/tcp/tcp_retransmit_skb")
AT(on_reset, "tp/tcp/tcp_send_reset")
