// SPDX-License-Identifier: GPL-2.0-only
// As biolatency does it: a histogram of how long requests of disks take. The one that ends has nothing to do without the
// one that begins.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum { SLOTS = 27 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, struct request *);
	__type(value, __u64);
} begun SEC(".maps");

__u32 slots[SLOTS];

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *request)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&begun, &request, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *request, int error, unsigned int bytes)
{
	__u64 *at = bpf_map_lookup_elem(&begun, &request), took;
	__u32 slot = 0;

	if (!at)
		return 0;
	took = bpf_ktime_get_ns() - *at;
	for (int i = 0; i < SLOTS - 1 && took > 1; i++, took >>= 1)
		slot++;
	if (slot < SLOTS)
		__sync_fetch_and_add(&slots[slot], 1);
	bpf_map_delete_elem(&begun, &request);
	return 0;
}

SEC("?tp_btf/block_rq_insert")
int BPF_PROG(on_insert, struct request *request)
{
	return 0;
}
