/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a probe's struct pt_regs hold when every register is known? */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/unwind_hints.h>

#include "known_call_code.h"

	.text

/*
 * No endbr, as it is only called directly: its first byte is its entry. The hint
 * lets objtool follow it to its end, which it would find unreachable (x86_64).
 */
SYM_CODE_START(known_call_target)
	ANNOTATE_NOENDBR
	UNWIND_HINT_FUNC
	nop
	nop
	nop
	nop
	nop
	RET
SYM_CODE_END(known_call_target)

SYM_FUNC_START(known_call)
	/* An interrupt's frame would overwrite the words below the stack pointer. */
#ifdef CONFIG_X86_64
	pushfq
	cli
	pushq %rbx
	pushq %rbp
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movl $KNOWN_STACK_WORDS, %ecx
1:	pushq $KNOWN_STACK_WORD
	decl %ecx
	jnz 1b
	leaq KNOWN_STACK_WORDS*8(%rsp), %rsp
	movq $KNOWN_VALUE(0), %rax
	movq $KNOWN_VALUE(1), %rbx
	movq $KNOWN_VALUE(2), %rcx
	movq $KNOWN_VALUE(3), %rdx
	movq $KNOWN_VALUE(4), %rsi
	movq $KNOWN_VALUE(5), %rdi
	movq $KNOWN_VALUE(6), %rbp
	movq $KNOWN_VALUE(7), %r8
	movq $KNOWN_VALUE(8), %r9
	movq $KNOWN_VALUE(9), %r10
	movq $KNOWN_VALUE(10), %r11
	movq $KNOWN_VALUE(11), %r12
	movq $KNOWN_VALUE(12), %r13
	movq $KNOWN_VALUE(13), %r14
	movq $KNOWN_VALUE(14), %r15
	stc
	call known_call_target
	.globl known_call_returned
known_call_returned:
	ANNOTATE_NOENDBR
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	popfq
#else
	pushfl
	cli
	pushl %ebx
	pushl %ebp
	pushl %esi
	pushl %edi
	movl $KNOWN_STACK_WORDS, %ecx
1:	pushl $KNOWN_STACK_WORD
	decl %ecx
	jnz 1b
	leal KNOWN_STACK_WORDS*4(%esp), %esp
	movl $KNOWN_VALUE(0), %eax
	movl $KNOWN_VALUE(1), %ebx
	movl $KNOWN_VALUE(2), %ecx
	movl $KNOWN_VALUE(3), %edx
	movl $KNOWN_VALUE(4), %esi
	movl $KNOWN_VALUE(5), %edi
	movl $KNOWN_VALUE(6), %ebp
	stc
	call known_call_target
	.globl known_call_returned
known_call_returned:
	popl %edi
	popl %esi
	popl %ebp
	popl %ebx
	popfl
#endif
	RET
SYM_FUNC_END(known_call)

/* The frame pointer holds no frame, and a loop fills the stack. */
STACK_FRAME_NON_STANDARD known_call
