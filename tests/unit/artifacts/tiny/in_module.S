/* SPDX-License-Identifier: GPL-2.0-only */
/* A module's functions: one traced, one not, one twice, one that is freed, and data. */
	.text
	.globl	traced
	.type	traced, @function
traced:
	call	__fentry__
	push	FRAME
	call	other
	ret
	.size	traced, .-traced
	.p2align 4
	.globl	untraced
	.type	untraced, @function
untraced:
	ret
	.size	untraced, .-untraced
	.globl	typeless
typeless:
	ret

	.section .init.text, "ax", @progbits
	.globl	beginning
	.type	beginning, @function
beginning:
	call	__fentry__
	ret
	.size	beginning, .-beginning
	.globl	init_module
	.set	init_module, beginning

	.section .exit.text, "ax", @progbits
	.globl	ending
	.type	ending, @function
ending:
	ret
	.size	ending, .-ending
	.globl	cleanup_module
	.set	cleanup_module, ending

	.section .text.unlikely, "ax", @progbits
	.type	cold, @function
cold:
	nop
	ret
	.size	cold, .-cold

	.data
	.globl	data
	.type	data, @object
data:
	.long	1
	.size	data, 4
