// SPDX-License-Identifier: GPL-2.0-only
// What a compiler makes of a function without and with a marker, written out so that every byte is known.
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:
	.endm
	.macro end name
	.size \name, . - \name
	.endm

function my_open_unmarked
	mov $-1, %eax		// 5
	ret			// 1
end my_open_unmarked

function my_open_optimized
	.byte 0xb0, 0		// 2
	test %al, %al		// 2
	jne 1f			// 2
2:	mov $-1, %eax
	ret
	.byte 0xcc, 0xcc	// padding, which nobody comes to
1:	mov $1, %edx		// 5
	call probe		// 5
	test %al, %al		// 2
	je 2b			// 2
	jmp 2b			// 2
end my_open_optimized

function my_open_generic
	.byte 0x0f, 0xb6, 0x05	// movzbl __marker_data, %eax: 7
	.long __marker_data
	test %al, %al		// 2
	jne my_open_generic.cold // 6: in another section
	mov $-1, %eax
	ret
end my_open_generic

function do_mark1
	ret
end do_mark1

function endless
	jmp endless
end endless

	.section .text.unlikely, "ax", @progbits
	.type my_open_generic.cold, @function
my_open_generic.cold:
	call probe		// 5
	nop			// 1
	ret			// 1
	.size my_open_generic.cold, . - my_open_generic.cold

	.section __markers, "aw", @progbits
	.skip 32
	.section __marker_data, "aw", @progbits
	.skip 24
	.section .note.GNU-stack, "", @progbits
