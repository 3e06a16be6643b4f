// SPDX-License-Identifier: GPL-2.0-only
// Moves a timer at each read: the kernel makes none in a map that no process and no file has any more.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum { CLOCK_MONOTONIC = 1 };

struct watch {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watch);
} watches SEC(".maps");

__u64 expired;

static int expire(void *map, __u32 *key, struct watch *watch)
{
	expired += 1;
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(watch_reads)
{
	__u32 key = 0;
	struct watch *watch = bpf_map_lookup_elem(&watches, &key);

	if (!watch)
		return 0;
	if (bpf_timer_init(&watch->timer, &watches, CLOCK_MONOTONIC) == 0)
		bpf_timer_set_callback(&watch->timer, expire);
	bpf_timer_start(&watch->timer, 3600ULL * 1000 * 1000 * 1000, 0);
	return 0;
}
