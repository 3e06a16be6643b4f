// SPDX-License-Identifier: GPL-2.0-only
// What programs do that do their work in some hits only.
#ifndef SAMPLING_H
#define SAMPLING_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

static __u64 sink;

static __always_inline int sample(void)
{
	for (int i = 0; i < 200; i++) {
		sink += i;
		asm volatile("" ::: "memory");
	}
	return 0;
}

#endif
