// SPDX-License-Identifier: GPL-2.0-only
// At functions and system calls that tools attach to, of sockets, processes and the system: calls of the table make them,
// which no guest is asked for.
#include "counting_at.h"

AT(on_bind, "kprobe/inet_bind")
AT(on_listen, "kprobe/inet_listen")
AT(on_connect, "kprobe/tcp_v6_connect")
AT(on_accepted, "kprobe/tcp_v6_syn_recv_sock")
AT(on_request, "kprobe/rtnetlink_rcv_msg")
AT(on_retransmission, "kprobe/tcp_retransmit_skb")
AT(on_oom, "kprobe/oom_kill_process")
AT(on_user_namespace, "kprobe/create_user_ns")
AT(on_mount, "tp/syscalls/sys_enter_mount")
AT(on_openat2, "tp/syscalls/sys_enter_openat2")
AT(on_newlstat, "tp/syscalls/sys_enter_newlstat")
AT(on_statfs, "tp/syscalls/sys_enter_statfs")
AT(on_sync, "tp/syscalls/sys_enter_sync")
AT(on_tgkill, "tp/syscalls/sys_enter_tgkill")
AT(on_tkill, "tp/syscalls/sys_enter_tkill")
