/* SPDX-License-Identifier: GPL-2.0-only */
/* What do the detours' C and assembler sources agree on? */
#ifndef LAB_DJPROBE_STUB_H
#define LAB_DJPROBE_STUB_H

/* Room for the head, the copied instructions, and the jump back. */
#define DETOUR_SIZE	64
#define DETOUR_COUNT	64

/* Bytes of whole instructions under a jump of five: four, and one instruction of the longest kind. */
#define DJPROBE_COVERED_MAX	19

/* struct pt_regs */
#ifdef CONFIG_X86_64
#define REGS_DI		(14 * 8)
#define REGS_SIZE	(21 * 8)
#else
#define REGS_AX		(6 * 4)
#define REGS_SS		(16 * 4)
#define REGS_SIZE	(17 * 4)
#endif

#ifndef __ASSEMBLY__
#include <linux/ptrace.h>

struct djprobe;

extern u8 djprobe_detours[DETOUR_COUNT][DETOUR_SIZE];
extern const u8 djprobe_stub[];

/* What every detour begins with, and its operands of 32 bits, of which each detour has its own. */
extern const u8 djprobe_head[], djprobe_head_end[];
extern const u8 djprobe_head_ip[], djprobe_head_called[], djprobe_head_stub[];

/* The stub calls it. */
void djprobe_hit(struct djprobe *djp, struct pt_regs *regs);
#endif

#endif
