// SPDX-License-Identifier: GPL-2.0-only
// Programs at static points of Debian's Python, each with a semaphore.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "GPL";

__u64 collections, lines;

SEC("usdt//usr/bin/python3.11:python:gc__start")
int BPF_USDT(on_collection, int generation)
{
	__sync_fetch_and_add(&collections, generation + 1);
	return 0;
}

SEC("usdt//usr/bin/python3.11:python:function__entry")
int BPF_USDT(on_call, const char *file, const char *function, int line)
{
	__sync_fetch_and_add(&lines, line);
	return 0;
}
