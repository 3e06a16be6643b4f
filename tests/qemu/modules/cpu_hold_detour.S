/* SPDX-License-Identifier: GPL-2.0-only */
/* How does a CPU come from an instruction to cpu_hold_wait() and back without a change to be seen? */
#include <linux/linkage.h>

	.text

SYM_CODE_START(cpu_hold_detour)
#ifdef CONFIG_X86_64
	pushq cpu_hold(%rip)	/* its address, to return to */
	pushfq
	pushq %rax
	pushq %rcx
	pushq %rdx
	pushq %rsi
	pushq %rdi
	pushq %r8
	pushq %r9
	pushq %r10
	pushq %r11
	call cpu_hold_wait
	popq %r11
	popq %r10
	popq %r9
	popq %r8
	popq %rdi
	popq %rsi
	popq %rdx
	popq %rcx
	popq %rax
	popfq
#else
	pushl cpu_hold
	pushfl
	pushl %eax
	pushl %ecx
	pushl %edx
	call cpu_hold_wait
	popl %edx
	popl %ecx
	popl %eax
	popfl
#endif
	ret
SYM_CODE_END(cpu_hold_detour)
