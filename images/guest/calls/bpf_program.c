// SPDX-License-Identifier: GPL-2.0-only
// Loads a BPF program of two instructions and closes it.
#include "workload.h"
#include <linux/bpf.h>

static const struct bpf_insn code[] = {
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	{.code = BPF_JMP | BPF_EXIT},
};

void workload(void)
{
	union bpf_attr loaded = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insn_cnt = sizeof(code) / sizeof(*code),
		.insns = (unsigned long)code,
		.license = (unsigned long)"GPL",
	};

	sys1(SYS_close, sys3(SYS_bpf, BPF_PROG_LOAD, &loaded, sizeof(loaded)));
}
