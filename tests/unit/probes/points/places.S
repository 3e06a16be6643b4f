/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions for what kinds of probe an instruction can have. Instructions have the same length everywhere. */
	.text
	.globl	_start
_start:
__fentry__:
	ret
kprobe_int3_handler:
	ret
probed:
	call	__fentry__		/* +0 */
	.byte	0x50			/* +5, push */
	mov	$0x12345678, %eax	/* +6, 5 bytes */
	xor	%eax, %eax		/* +b */
	call	other			/* +d */
	test	%eax, %eax		/* +12 */
	je	1f			/* +14 */
	mov	$0x12345678, %eax	/* +16 */
1:	nop				/* +1b, right behind five bytes */
	mov	$0x12345678, %eax	/* +1c */
	.byte	0x0f, 0x1f, 0x44, 0, 0	/* +21, a static branch to +2b */
	mov	$0x12345678, %eax	/* +26 */
	.byte	0x0f, 0x1f, 0x00	/* +2b, replaced as the kernel boots */
	ud2				/* +2e, a BUG() */
	cli				/* +30 */
	ret				/* +31 */
	int3				/* padding */
	int3
	int3
	int3
	int3
other:
	mov	$0x12345678, %eax
	ret
	int3
grouped:
	.byte	0x90			/* a nop */
	.byte	0xc1, 0xe0, 0x06	/* shl */
	.byte	0xc1, 0xf0, 0x06	/* the same for AMD alone */
	.byte	0xf6, 0xc0, 0x01	/* test */
	.byte	0xf6, 0xc8, 0x01	/* the same for AMD alone */
	.byte	0xff, 0xe0		/* an indirect jump */
	.byte	0xfe, 0xc0		/* inc */
	.byte	0xcd, 0x80		/* int */
	.byte	0x0f, 0x0b		/* ud2 that is no BUG() */
	ret
tagged:
	.byte	0xf3, 0x0f, 0x1e, 0xfa	/* +0, endbr64 */
	call	__fentry__		/* +4 */
	.byte	0x50			/* +9, push */
	call	other			/* +a */
	.byte	0x58			/* +f, pop */
	ret				/* +10 */
short:
	.byte	0x50
	ret
faulting:
	mov	$0x12345678, %eax	/* may fault and be fixed up */
	xor	%eax, %eax
	ret
jumping:
	mov	$0x12345678, %eax
	.byte	0xff, 0xe0		/* jmp through the register */
	int3
secret:
	mov	$0x12345678, %eax
	ret
secret.part.0:
	mov	$0x12345678, %eax
	ret
	.globl	__noinstr_text_start
__noinstr_text_start:
untraceable:
	mov	$0x12345678, %eax
	ret
	.globl	__noinstr_text_end
__noinstr_text_end:
	nop

	.section .rodata, "a"
	.long	0
	.long	probed + 0x21 - .
	.long	probed + 0x2b - .
	.dc.a	0

	.section .altinstructions, "a"
	.long	probed + 0x2b - .
	.long	0
	.short	0
	.byte	3, 3

	.section __bug_table, "aw"
	.long	probed + 0x2e - .
	.long	0, 0

	.section __ex_table, "a"
	.long	faulting - .
	.long	0, 0

	.section .init.data, "aw"
	/* The function tracer's list, that of functions not to be probed, that of errors to inject. */
	.dc.a	kprobe_int3_handler, probed, 0
	.dc.a	kprobe_int3_handler, secret, other, 1, short, 2
