// SPDX-License-Identifier: GPL-2.0-only
// Does its work in each sixteenth hit.
#include "sampling.h"

static __u64 hits;

SEC("fentry/vfs_read")
int BPF_PROG(each_16th)
{
	return hits++ % 16 ? 0 : sample();
}
