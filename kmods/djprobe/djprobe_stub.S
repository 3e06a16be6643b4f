/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all detours share: the buffers they are written to, and the call of the
 * handler with the probed function's registers.
 *
 * A detour pushes a struct djprobe and calls djprobe_stub. These two words
 * are where ss and sp of a struct pt_regs belong, so pushing the rest below
 * them completes one. cs is constant; ip, orig_ax and the data segments are
 * left undefined: a handler is always entered from the kernel, and no segment
 * changes.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/segment.h>

#include "djprobe_stub.h"

	.text

	.balign DETOUR_SIZE
	.globl djprobe_detours
djprobe_detours:
	.fill DETOUR_COUNT * DETOUR_SIZE, 1, 0xcc

SYM_FUNC_START(djprobe_stub)
#ifdef CONFIG_X86_64
	pushfq
	pushq $__KERNEL_CS
	leaq -2*8(%rsp), %rsp		/* ip, orig_ax */
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %rax
	pushq %r8
	pushq %r9
	pushq %r10
	pushq %r11
	pushq %rbx
	pushq %rbp
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15

	movq REGS_SP(%rsp), %rbx	/* return address into the detour */
	movq REGS_SS(%rsp), %rdi	/* the probe */
	movq %rsp, %rsi
	leaq REGS_SIZE(%rsp), %rax
	movq %rax, REGS_SP(%rsp)

	/* The kernel keeps its stack aligned to 8 bytes only. */
	movq %rsp, %r12
	andq $-16, %rsp
	call djprobe_hit
	movq %r12, %rsp

	movq %rbx, REGS_SP(%rsp)
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	popq %r11
	popq %r10
	popq %r9
	popq %r8
	popq %rax
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	leaq 3*8(%rsp), %rsp		/* orig_ax, ip, cs */
	popfq
#else
	pushfl
	pushl $__KERNEL_CS
	leal -6*4(%esp), %esp		/* ip, orig_ax, gs, fs, es, ds */
	pushl %eax
	pushl %ebp
	pushl %edi
	pushl %esi
	pushl %edx
	pushl %ecx
	pushl %ebx

	movl REGS_SP(%esp), %ebx	/* return address into the detour */
	movl REGS_SS(%esp), %eax	/* the probe */
	leal REGS_SIZE(%esp), %edx
	movl %edx, REGS_SP(%esp)
	movl %esp, %edx
	call djprobe_hit

	movl %ebx, REGS_SP(%esp)
	popl %ebx
	popl %ecx
	popl %edx
	popl %esi
	popl %edi
	popl %ebp
	popl %eax
	leal 7*4(%esp), %esp		/* ds, es, fs, gs, orig_ax, ip, cs */
	popfl
#endif
	RET
SYM_FUNC_END(djprobe_stub)

/* It keeps a return address where objtool expects none. */
STACK_FRAME_NON_STANDARD djprobe_stub
