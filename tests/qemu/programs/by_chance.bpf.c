// SPDX-License-Identifier: GPL-2.0-only
// Does its work in one hit of sixteen, by chance.
#include "sampling.h"

SEC("fentry/vfs_read")
int BPF_PROG(by_chance)
{
	return bpf_get_prandom_u32() % 16 ? 0 : sample();
}
