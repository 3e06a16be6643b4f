/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions as a compiler makes them: with and without an endbr and a call of the function tracer. */
	.text
	.globl _start
_start:

	.macro function name
	.balign 16, 0x90
	.globl \name
	.type \name, @function
\name:
	.endm

	.macro endbr
	.byte 0xf3, 0x0f, 0x1e, 0xfa
	.endm

	function __fentry__
	ret
	function other
	ret

	function plain
	xor %eax, %eax
	ret
	.skip 8, 0x90

	function with_endbr
	endbr
	ret
	.skip 8, 0x90

	function traced
	call __fentry__
	ret
	.skip 8, 0x90

	function traced_with_endbr
	endbr
	call __fentry__
	ret
	.skip 8, 0x90

	function nopped_with_endbr
	endbr
	.byte 0x0f, 0x1f, 0x44, 0x00, 0x00
	ret
	.skip 8, 0x90

	function calling_something_else
	call other
	ret
	.skip 8, 0x90
