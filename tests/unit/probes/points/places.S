/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions for what kinds of probe an instruction can have. Instructions have the same length everywhere. */
	.text
	.globl	_start
_start:
__fentry__:
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
1:	nop				/* +1b */
	mov	$0x12345678, %eax	/* +1c */
	.byte	0x0f, 0x1f, 0x44, 0, 0	/* +21 */
	rep movsb			/* +26 */
	ret				/* +28 */
	int3				/* padding */
	int3
	int3
	int3
	int3
other:
	mov	$0x12345678, %eax
	ret
	int3
tagged:
	.byte	0xf3, 0x0f, 0x1e, 0xfa	/* +0, endbr64 */
	call	__fentry__		/* +4 */
	.byte	0x50			/* +9, push */
	call	other			/* +a */
	.byte	0x58			/* +f, pop */
	ret				/* +10 */
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

	.section .init.data, "aw"
	.globl	__start_kprobe_blacklist
__start_kprobe_blacklist:
	.dc.a	secret
	.globl	__stop_kprobe_blacklist
__stop_kprobe_blacklist:
	.dc.a	other
