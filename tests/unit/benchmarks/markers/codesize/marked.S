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
	.byte 0xcc, 0xcc	// padding, never reached
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

#ifdef __x86_64__
#define POINTER .quad
#else
#define POINTER .long
#endif
	// The generic marker has a second site, and a variable of its own.
	.section __markers, "aw", @progbits
	POINTER marker2, 0
	POINTER marker1, my_open_optimized
	POINTER marker2, 0

	.section __marker_data, "aw", @progbits
	.type marker1, @object
marker1:
	POINTER name1, format, probe
	.byte 0, 0, 0, 0
	.size marker1, . - marker1
	.type marker2, @object
marker2:
	POINTER name2, format, own
	.byte 0, 0
	.size marker2, . - marker2

	.data
	.type own, @object
own:	.long 0
	.size own, . - own
	.section .rodata.str1.1, "aMS", @progbits, 1
format:	.string "%d %p"
name1:	.string "subsys_mark1"
name2:	.string "subsys_mark2"
	.section .note.GNU-stack, "", @progbits
