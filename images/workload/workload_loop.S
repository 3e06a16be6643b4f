// SPDX-License-Identifier: GPL-2.0-only
// long call_again_and_again(long calls): `calls` equal rounds; returns 0.
	.text
	.globl call_again_and_again
call_again_and_again:
#ifdef __i386__
	push %ebx
	sub $8, %esp		// aligned to 16 bytes, as the function expects its stack
	mov 16(%esp), %ebx
	jmp 2f
1:	call workload
2:	dec %ebx
	jns 1b
	xor %eax, %eax
	add $8, %esp
	pop %ebx
#else
	push %rbx
	mov %rdi, %rbx
	jmp 2f
1:	call workload
2:	dec %rbx
	jns 1b
	xor %eax, %eax
	pop %rbx
#endif
	ret
	.section .note.GNU-stack, "", @progbits
