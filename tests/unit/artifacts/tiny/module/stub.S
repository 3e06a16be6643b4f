// SPDX-License-Identifier: GPL-2.0-only
	.globl shared
shared:
	movl $41, %eax
	ret
	.section .note.GNU-stack, "", @progbits
