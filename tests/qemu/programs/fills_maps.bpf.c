// SPDX-License-Identifier: GPL-2.0-only
// Each read puts something into a map that nobody empties: some have room for all of it, some do not.
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum { ENOENT = 2 };

struct record {
	__u64 when;
	__u32 pid;
	char filler[240];
};

#define RING(name, bytes)				\
	struct {					\
		__uint(type, BPF_MAP_TYPE_RINGBUF);	\
		__uint(max_entries, bytes);		\
	} name SEC(".maps")

#define MAP(name, kind, entries, key_type)		\
	struct {					\
		__uint(type, kind);			\
		__uint(max_entries, entries);		\
		__type(key, key_type);			\
		__type(value, __u64);			\
	} name SEC(".maps")

static __always_inline void reserve(void *ring)
{
	struct record *record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);

	if (!record)
		return;
	record->when = bpf_ktime_get_ns();
	record->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_ringbuf_submit(record, 0);
}

RING(small, 4096);
RING(typical, 256 << 10);
RING(large, 16 << 20);

SEC("fentry/vfs_read")
int BPF_PROG(ring_small)
{
	reserve(&small);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(ring_typical)
{
	reserve(&typical);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(ring_large)
{
	reserve(&large);
	return 0;
}

static __always_inline void insert(void *map)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(map, &now, &now, BPF_ANY);
}

MAP(full, BPF_MAP_TYPE_HASH, 256, __u64);
MAP(fills, BPF_MAP_TYPE_HASH, 8192, __u64);
MAP(roomy, BPF_MAP_TYPE_HASH, 65536, __u64);
MAP(of_each_cpu, BPF_MAP_TYPE_PERCPU_HASH, 256, __u64);
MAP(newest, BPF_MAP_TYPE_LRU_HASH, 256, __u64);
MAP(by_process, BPF_MAP_TYPE_HASH, 1024, __u32);
MAP(alone, BPF_MAP_TYPE_HASH, 1, __u32);

SEC("fentry/vfs_read")
int BPF_PROG(hash_full)
{
	insert(&full);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(hash_fills)
{
	insert(&fills);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(hash_roomy)
{
	insert(&roomy);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(percpu_hash_full)
{
	insert(&of_each_cpu);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(lru)
{
	insert(&newest);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(lru_of_one_key)
{
	__u64 key = 0;

	bpf_map_update_elem(&newest, &key, &key, BPF_ANY);
	return 0;
}

struct wide_key {
	__u64 when;
	char path[592];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wide_key);
} scratch SEC(".maps");

MAP(full_of_paths, BPF_MAP_TYPE_HASH, 256, struct wide_key);

SEC("fentry/vfs_read")
int BPF_PROG(hash_of_wide_keys)
{
	__u32 zero = 0;
	struct wide_key *key = bpf_map_lookup_elem(&scratch, &zero);
	__u64 count = 1;

	if (!key)
		return 0;
	key->when = bpf_ktime_get_ns();
	bpf_map_update_elem(&full_of_paths, key, &count, BPF_ANY);
	return 0;
}

enum { MANY = 10240, HITS_OF_A_KEY = 16 };

MAP(newest_of_many, BPF_MAP_TYPE_LRU_HASH, MANY, __u64);

static long insert_number(__u32 number, void *unused)
{
	__u64 key = number;

	bpf_map_update_elem(&newest_of_many, &key, &key, BPF_ANY);
	return 0;
}

__u64 hits_of_many;

// The first hit fills the map; from then on few of the keys are evicted in a thousand hits.
SEC("fentry/vfs_read")
int BPF_PROG(lru_nearly_full)
{
	__u64 hit = hits_of_many++;

	if (hit == 0)
		bpf_loop(MANY, insert_number, NULL, 0);
	else if (hit % HITS_OF_A_KEY == 0)
		insert(&newest_of_many);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(hash_by_process)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 count = 1;

	bpf_map_update_elem(&by_process, &pid, &count, BPF_ANY);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(hash_of_one_key)
{
	__u32 key = 0;
	__u64 count = 1;

	bpf_map_update_elem(&alone, &key, &count, BPF_ANY);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, 12);
	__uint(value_size, sizeof(__u64));
} prefixes SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(trie_full)
{
	struct {
		__u32 bits;
		__u32 when[2];
	} key = {.bits = 64};
	__u64 now = bpf_ktime_get_ns();

	key.when[0] = now;
	key.when[1] = now >> 32;
	bpf_map_update_elem(&prefixes, &key, &now, BPF_ANY);
	return 0;
}

#define QUEUE(name, kind, entries)			\
	struct {					\
		__uint(type, kind);			\
		__uint(max_entries, entries);		\
		__type(value, __u64);			\
	} name SEC(".maps")

QUEUE(short_queue, BPF_MAP_TYPE_QUEUE, 64);
QUEUE(short_stack, BPF_MAP_TYPE_STACK, 64);
QUEUE(long_queue, BPF_MAP_TYPE_QUEUE, 65536);

static __always_inline void push(void *queue)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_push_elem(queue, &now, 0);
}

SEC("fentry/vfs_read")
int BPF_PROG(queue_full)
{
	push(&short_queue);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(stack_full)
{
	push(&short_stack);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(queue_roomy)
{
	push(&long_queue);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} events SEC(".maps");

__u64 lost;
const volatile __u64 from;

SEC("fentry/vfs_read")
int BPF_PROG(perf_read)
{
	__u64 now = bpf_ktime_get_ns();

	if (bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &now, sizeof(now)) == -ENOENT)
		lost += 1;
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(perf_unused)
{
	__u64 now = bpf_ktime_get_ns();

	if (now < from)
		bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &now, sizeof(now));
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 127 * sizeof(__u64));
} stacks SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(stack_of_reads)
{
	if (bpf_get_stackid(ctx, &stacks, 0) < 0)
		lost += 1;
	return 0;
}

struct inner {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
} inside SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct inner);
} outside SEC(".maps") = {.values = {&inside}};

SEC("fentry/vfs_read")
int BPF_PROG(inner_hash_full)
{
	__u32 key = 0;
	void *map = bpf_map_lookup_elem(&outside, &key);

	if (map)
		insert(map);
	return 0;
}
