/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions and data for what is known of a probe point before a boot. Instructions have the same length everywhere. */
	.text
	.globl	_start
_start:
vfs_read:
	nop				/* +0 */
	call	vfs_write		/* +1, 5 bytes, whose target the kernel may choose as it boots */
	.byte	0x0f, 0x1f, 0x00	/* +6, a nop of 3 bytes that other code replaces as the kernel boots */
	ret				/* +9 */
	int3				/* padding */
	int3
	int3
	.globl	vfs_write
vfs_write:
	ret
	nop
__pfx_spaced:
	nop
	nop
spaced:
	ret

	.section .exit.text, "ax"
late_end:
	ret

	.section .behind_text, "ax"
_etext:
	ret

	.section .call_sites, "a"
	.long	vfs_read + 1 - .

	.section .init.text, "ax"
	.globl	_sinittext
_sinittext:
early_setup:
	ret
	.globl	_einittext
_einittext:
	nop

	.section .altinstructions, "a"
	.long	vfs_read + 6 - .
	.long	0
	.short	0
	.byte	3, 3

	.data
	.globl	jiffies
jiffies:
	.long	0
