// SPDX-License-Identifier: GPL-2.0-only
// Updates an element of a BPF hash map by bpf(), and looks it up.
#include "workload.h"
#include <linux/bpf.h>

static long fd;
static uint32_t key;
static uint64_t value;

void workload_setup(void)
{
	union bpf_attr made = {
		.map_type = BPF_MAP_TYPE_HASH, .key_size = sizeof(key), .value_size = sizeof(value), .max_entries = 16
	};

	fd = sys3(SYS_bpf, BPF_MAP_CREATE, &made, sizeof(made));
}

void workload(void)
{
	union bpf_attr element = {.map_fd = (uint32_t)fd, .key = (unsigned long)&key, .value = (unsigned long)&value};

	sys3(SYS_bpf, BPF_MAP_UPDATE_ELEM, &element, sizeof(element));
	sys3(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &element, sizeof(element));
}
