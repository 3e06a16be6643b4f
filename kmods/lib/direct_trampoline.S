/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does a directly called trampoline do, and where is one for each handler?
 *
 * It is at a function's entry, behind the call in the place of the function
 * tracer's nop. It saves what a function's caller may have in the registers that
 * the handler may change: the arguments, and ax. These are those that
 * ftrace_caller() of arch/x86/kernel/ftrace_64.S saves (save_mcount_regs).
 */
#include <linux/linkage.h>

	.text

.macro trampoline name
SYM_FUNC_START(trampoline_\name)
	pushq %rbp
	movq %rsp, %rbp
	pushq %rax
	pushq %rcx
	pushq %rdx
	pushq %rsi
	pushq %rdi
	pushq %r8
	pushq %r9

	/* Above bp and the way back into the function: where that returns to. */
	movq 16(%rbp), %rdi
	call direct_\name

	popq %r9
	popq %r8
	popq %rdi
	popq %rsi
	popq %rdx
	popq %rcx
	popq %rax
	popq %rbp
	RET
SYM_FUNC_END(trampoline_\name)
.endm

trampoline noop
trampoline count
trampoline record
trampoline stack
