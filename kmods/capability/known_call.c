// SPDX-License-Identifier: GPL-2.0-only
/* What does a probe's struct pt_regs hold when every register is known? */
#include <linux/kprobes.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>

#include "known_call.h"

static bool flags_are_right(const struct pt_regs *regs)
{
	return (regs->flags & (X86_EFLAGS_CF | X86_EFLAGS_IF)) == X86_EFLAGS_CF;
}
NOKPROBE_SYMBOL(flags_are_right);

bool known_call_is_right(const struct pt_regs *regs)
{
	/* In the order of the values in known_call(). */
	const unsigned long general[] = {
		regs->ax, regs->bx, regs->cx, regs->dx, regs->si, regs->di, regs->bp,
#ifdef CONFIG_X86_64
		regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15,
#endif
	};
	unsigned int number;

	for (number = 0; number < ARRAY_SIZE(general); number++)
		if (general[number] != KNOWN_VALUE(number))
			return false;
	return flags_are_right(regs) && *(const unsigned long *)regs->sp == (unsigned long)known_call_returned;
}
NOKPROBE_SYMBOL(known_call_is_right);

bool known_call_lacks_segments(const struct pt_regs *regs)
{
#ifdef CONFIG_X86_64
	/* The only one that is no constant there. */
	return regs->ss != __KERNEL_DS;
#else
	const u16 undefined = (u16)KNOWN_STACK_WORD;

	return regs->ds == undefined && regs->es == undefined && regs->fs == undefined && regs->gs == undefined;
#endif
}
NOKPROBE_SYMBOL(known_call_lacks_segments);
