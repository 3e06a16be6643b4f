// SPDX-License-Identifier: GPL-2.0-only
// Programs that count their hits and do no more, each at a section.
#ifndef COUNTING_AT_H
#define COUNTING_AT_H

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

#endif
