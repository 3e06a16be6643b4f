// SPDX-License-Identifier: GPL-2.0-only
// Which CPU of the guest executes a block, where QEMU executes all in one thread?
//
// QEMU 10.0 tells a plugin the CPU for which it translated the block: it takes a thread for several CPUs for a machine of
// one (gen_cpu_index() of accel/tcg/plugin-gen.c). So where registers can be read, since 9.0, the plugin finds the CPU by
// where the kernel, for x86_64, has the memory of each. Older ones name the right CPU.
#ifndef EXECUTING_H
#define EXECUTING_H

#include "qemu_plugin.h"

// To be called as a block begins, with the CPU that QEMU says; the callback needs QEMU_PLUGIN_CB_R_REGS.
void begin_block(unsigned int vcpu);
// The CPU of the block. Where QEMU's number is not to be trusted, CPUs have numbers in the order in which they executed
// since forget_others(), whose caller is number 0; CPUS (lines.h) where there were as many before.
unsigned int executing_cpu(void);
void forget_others(void);
// False where QEMU shows no register that tells.
bool tells_cpus(void);

#endif
