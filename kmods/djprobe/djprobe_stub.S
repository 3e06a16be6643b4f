/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What do all detours share? The buffers they are written to, the instructions
 * they begin with, and the call of the handler with the probed function's
 * registers.
 *
 * Head and stub together push a struct pt_regs, from its end on. As in an
 * optimised kprobe's, ip is behind the int3 that a kprobe would have there, and
 * orig_ax shows that this is no system call. The data segments are left
 * undefined, and ss: no segment changes. A return address into the detour must
 * not lie among the registers; the stub moves it into a word that a handler has
 * no use for, from where it is popped last.
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

/* An operand of 32 bits at the end of the instruction before, to be filled in. */
.macro operand name
	.globl djprobe_head_\name
	.set djprobe_head_\name, . - 4
.endm

	.section .rodata
	.globl djprobe_head
djprobe_head:
#ifdef CONFIG_X86_64
	pushq %rsp			/* above the registers: room for the return address */
	pushq (%rsp)			/* ss */
	pushq (%rsp)			/* sp, as it is at the probe point */
	pushfq
	pushq $__KERNEL_CS
	pushq $0x7fffffff
	operand ip
	pushq $-1			/* orig_ax */
	pushq %rdi
	movq 0x7fffffff, %rdi
	operand called
#else
	pushl %esp			/* ss: room for the return address */
	pushl (%esp)			/* sp, as it is at the probe point */
	pushfl
	pushl $__KERNEL_CS
	pushl $0x7fffffff
	operand ip
	pushl $-1			/* orig_ax */
	leal -4*4(%esp), %esp		/* gs, fs, es, ds */
	pushl %eax
	movl 0x7fffffff, %eax
	operand called
#endif
	.byte 0xe8			/* call djprobe_stub */
	.long 0
	operand stub
	.globl djprobe_head_end
djprobe_head_end:
	.if djprobe_head_end - djprobe_head > DETOUR_SIZE - DJPROBE_COVERED_MAX - 5
	.error "no room for the copied instructions and the jump back"
	.endif

	.text

/* The first argument, the probe, is in its register already. */
SYM_FUNC_START(djprobe_stub)
#ifdef CONFIG_X86_64
	popq (REGS_SIZE - REGS_DI)(%rsp)
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

	/* The kernel keeps its stack aligned to 8 bytes only. */
	movq %rsp, %rsi
	movq %rsp, %r12
	andq $-16, %rsp
	call djprobe_hit
	movq %r12, %rsp

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
	leaq 2*8(%rsp), %rsp		/* sp, ss */
#else
	popl (REGS_SS - REGS_AX)(%esp)
	pushl %ebp
	pushl %edi
	pushl %esi
	pushl %edx
	pushl %ecx
	pushl %ebx

	movl %esp, %edx
	call djprobe_hit

	popl %ebx
	popl %ecx
	popl %edx
	popl %esi
	popl %edi
	popl %ebp
	popl %eax
	leal 7*4(%esp), %esp		/* ds, es, fs, gs, orig_ax, ip, cs */
	popfl
	leal 4(%esp), %esp		/* sp */
#endif
	RET
SYM_FUNC_END(djprobe_stub)

/* It moves its return address, where objtool expects it to stay. */
STACK_FRAME_NON_STANDARD djprobe_stub
