/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * At which functions can a djprobe be, and at which can it not?
 *
 * Each is a long f(long argument). Nothing here is called but by the host's
 * order, and of those that must be refused nothing at all.
 */
#include <linux/linkage.h>
#include <asm/alternative.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>

#ifdef CONFIG_X86_64
#define ARGUMENT	%rdi
#define RESULT		%rax
#define STACK		%rsp
#else
#define ARGUMENT	%eax
#define RESULT		%eax
#define STACK		%esp
#endif

.macro shape name
	.balign 16, 0xcc
	.globl djprobe_shape_\name
	.type djprobe_shape_\name, @function
djprobe_shape_\name:
.endm

	.text

/* long djprobe_invoke(long (*f)(long), long argument): f with the carry set and the second argument 0. */
SYM_FUNC_START(djprobe_invoke)
#ifdef CONFIG_X86_64
	movq %rdi, %rcx
	movq %rsi, %rdi
	xorl %esi, %esi
	stc
	CALL_NOSPEC rcx
#else
	movl %eax, %ecx
	movl %edx, %eax
	xorl %edx, %edx
	stc
	CALL_NOSPEC ecx
#endif
	ret
SYM_FUNC_END(djprobe_invoke)

/* --- places for a jump ---------------------------------------------------- */

/* One instruction of exactly five bytes. */
shape five
	movl $0x2005, %eax
	ret

/* One byte and four; a push, so that the stack is not what it was. */
shape one_four
#ifdef CONFIG_X86_64
	pushq %rbp
	leaq 7(%rdi), %rax
	popq %rbp
#else
	pushl %ebp
	.byte 0x8d, 0x44, 0x20, 0x07	/* leal 7(%eax), %eax with a sib byte */
	popl %ebp
#endif
	ret

/* One byte, two and three, or one, three and four: byte 5 is inside the last. */
shape frame
#ifdef CONFIG_X86_64
	pushq %rbp
	movq %rsp, %rbp
	subq $0x18, %rsp
#else
	pushl %ebp
	movl %esp, %ebp
	subl $0x18, %esp
#endif
	movl $0x2006, %eax
	leave
	ret

/* An operand that is found relative to the instruction, where there is such a thing. */
shape relative
#ifdef CONFIG_X86_64
	movq djprobe_constant(%rip), %rax
#else
	movl djprobe_constant, %eax
#endif
	ret

/* The word that the stack pointer points to: the return address. */
shape stack
	mov (STACK), RESULT
	nop
	nop
	nop
	ret

/* The carry that the caller left. */
shape flags
	movl $0, %eax
	adcl $0, %eax
	ret

/* A branch to the function's own first byte, argument times. */
shape loop
#ifdef CONFIG_X86_64
	addq $0x10000, %rsi
	decl %edi
	jnz djprobe_shape_loop
	movq %rsi, %rax
#else
	addl $0x10000, %edx
	decl %eax
	jnz djprobe_shape_loop
	movl %edx, %eax
#endif
	ret

/* What the argument is when the function begins. */
shape argument
#ifdef CONFIG_X86_64
	leaq 0x1000(%rdi), %rax
#else
	leal 0x1000(%eax), %eax
#endif
	ret

/* More than one module has detours for. */
.altmacro
.macro many number
	shape many_\number
	movl $\number, %eax
	ret
.endm
.set number, 0
.rept 65
	many %number
	.set number, number + 1
.endr
.noaltmacro

/* --- no places for a jump ------------------------------------------------- */

/* Ends too soon by a return, and by the next function. */
shape short
	xorl %eax, %eax
	ret

	.balign 16, 0xcc
	.globl djprobe_shape_runs_on
	.type djprobe_shape_runs_on, @function
djprobe_shape_runs_on:
	nop
	nop
	nop
	.globl djprobe_shape_next
	.type djprobe_shape_next, @function
djprobe_shape_next:
	movl $3, %eax
	ret

shape branch
	xorl %eax, %eax
1:	incl %eax
	nop
	nop
	cmpl $9, %eax
	jne 1b
	ret

/* The way in is in what a compiler would have moved out of the function. */
shape cold
	xorl %eax, %eax
2:	incl %eax
	nop
	nop
	cmpl $9, %eax
	jne djprobe_shape_cold.cold
	ret

shape cold.cold
	jmp 2b

shape indirect
	movl $1, %eax
	jmp *ARGUMENT

shape breakpoint
	int3
	movl $1, %eax
	ret

shape later_breakpoint
	movl $1, %eax
	int3
	ret

/* The fixup leads back into the function. */
shape fixup
	movl $1, %eax
1:	nop
2:	ret
	_ASM_EXTABLE(1b, 2b)

shape call
	call djprobe_shape_five
	ret

shape blacklisted
	movl $2, %eax
	ret

shape lock
	LOCK_PREFIX
	incl djprobe_counter
	movl $4, %eax
	ret
