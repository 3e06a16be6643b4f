// SPDX-License-Identifier: GPL-2.0-only
// Does its work in each 4099th hit of a CPU.
#include "sampling.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(each_4099th)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&hits, &first);

	return !count || ++*count % 4099 ? 0 : sample();
}
