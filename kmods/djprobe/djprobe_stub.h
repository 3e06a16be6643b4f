/* SPDX-License-Identifier: GPL-2.0-only */
/* What do the detours' C and assembler sources agree on? */
#ifndef LAB_DJPROBE_STUB_H
#define LAB_DJPROBE_STUB_H

/* Room for push, call, lea, at most 19 bytes of copied instructions, and jmp. */
#define DETOUR_SIZE	64
#define DETOUR_COUNT	64

/* struct pt_regs */
#ifdef CONFIG_X86_64
#define REGS_SP		(19 * 8)
#define REGS_SS		(20 * 8)
#define REGS_SIZE	(21 * 8)
#else
#define REGS_SP		(15 * 4)
#define REGS_SS		(16 * 4)
#define REGS_SIZE	(17 * 4)
#endif

#endif
