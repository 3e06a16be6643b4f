// SPDX-License-Identifier: GPL-2.0-only
// Calls three functions in every call, as the kernel's bench trig-uprobe-* does: their first instructions are a nop, which the
// kernel emulates, a push, which it emulates too, and a ret, which it steps.

#define TARGET(name, instructions)                                                                       \
	void name(void);                                                                                 \
	__asm__(".pushsection .text\n\t.globl " #name "\n\t.type " #name ", @function\n" #name ":\n\t"   \
		instructions "\n\tret\n\t.size " #name ", . - " #name "\n\t.popsection")

TARGET(at_nop, "nop");
TARGET(at_push, "push %rbp\n\tpop %rbp");
TARGET(at_ret, "");

void workload(void)
{
	at_nop();
	at_push();
	at_ret();
}
