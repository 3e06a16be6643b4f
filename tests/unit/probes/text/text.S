/* SPDX-License-Identifier: GPL-2.0-only */
/* A kernel's text with one place of each kind that a boot patches, and the tables that list them. It cannot boot. */
#ifdef __x86_64__
#define WORD	.quad
#define THUNK	__x86_indirect_thunk_rax
#define TABLE_KEY(key) .quad key - .
#define NOPS_SECOND_BYTE 0x1f
#else
#define WORD	.long
#define THUNK	__x86_indirect_thunk_eax
#define TABLE_KEY(key) .long key - .
#define NOPS_SECOND_BYTE 0x8d
#endif

/* As the compiler writes them: with a distance of 32 bits, however near. */
.macro far opcode target
	.byte \opcode
	.long \target - . - 4
.endm
.macro place name
	.globl \name
\name:
.endm

	.text
place _stext
place __fentry__
	ret
place traced
	far 0xe8 __fentry__
	ret
place locked
	.byte 0xf0, 0xff, 0x00
	ret
place sealed
	.byte 0xf3, 0x0f, 0x1e, 0xfa
	ret
place returning
	far 0xe9 __x86_return_thunk
place __x86_return_thunk
	ret
	int3
place srso_return_thunk
	ret
	int3
place thunk_call
	far 0xe8 THUNK
	ret
place thunk_jump
	far 0xe9 THUNK
place thunk_condition
	.byte 0x0f
	far 0x84 THUNK
	ret
place THUNK
	ret
place hypervisor
	.byte 0xff, 0x15, 0, 0, 0, 0
	ret
place alternative
	far 0xe9 slow
place fast
	ret
place slow
	ret
place padded
	.byte 0x31, 0xc0, 0x90, 0x90, 0x90
	ret
place calling
	far 0xe8 __SCT__chosen
	ret
place leaving
	far 0xe9 __SCT__chosen
place calling_nothing
	far 0xe8 __SCT__unset
	ret
place branch
	.byte 0xe9
	.long branch_target - . - 4
place branch_target
	ret
place tracepoint
	.byte 0xe9
	.long tracepoint_target - . - 4
place tracepoint_target
	ret
place first
	ret
place second
	ret
place __static_call_return0
	ret
place __traceiter_event
	ret
place __SCT__chosen
	far 0xe9 first
	.byte 0x0f, 0xb9, 0xcc
place calling_at_a_distance
	/* Its distance begins with the second byte of the nop that takes its place. */
	far 0xe8 __SCT__unset
	.fill NOPS_SECOND_BYTE, 1, 0x55
place __SCT__unset
	ret
	int3
	nop
	nop
	nop
	.byte 0x0f, 0xb9, 0xcc
place __SCT__tp_func_event
	far 0xe9 __traceiter_event
	.byte 0x0f, 0xb9, 0xcc
place calling_twice
	/* The distances are negative: no byte of these is one of a nop. */
	far 0xe8 __SCT__unset
place calling_again
	far 0xe8 __SCT__unset
	ret
place quiet
	.fill 16, 1, 0x90
	ret
place constant
	WORD 0x89abcdef
place same_constant
	WORD 0x89abcdef
place shift
	.byte 0xc1, 0xe8, 12
	ret
place plain
	.fill 64, 1, 0x55
place last_return
	far 0xe9 __x86_return_thunk
place _etext
	.globl _sinittext
	.set _sinittext, _etext

	.section .smp_locks, "a"
	.long locked - .
	.section .ibt_endbr_seal, "a"
	.long sealed - .
	.section .return_sites, "a"
	.long returning - .
	.long last_return - .
	.section .retpoline_sites, "a"
	.long thunk_call - .
	.long thunk_jump - .
	.long thunk_condition - .

#ifndef NEWER
	.section .parainstructions, "a"
	WORD hypervisor
	.byte 0, 6
	.balign 4
#ifdef __x86_64__
	.balign 8
#endif
#endif

	.section .altinstructions, "a"
	/* A feature, then the sizes: in Linux 6.1. Linux 6.3 put flags before the sizes, Linux 5.10 had a third size. */
#ifndef FLAGS
#define FLAGS 0
#define THIRD_SIZE 0
#endif
#ifndef REPLACEMENT
#define REPLACEMENT other_code
#endif
.macro replaced at replacement size replacement_size
	.long \at - ., \replacement - .
	.short 1
	.fill FLAGS, 1, 0
	.byte \size, \replacement_size
	.fill THIRD_SIZE, 1, 0
.endm
.rept 2
	replaced alternative to_fast 5 5
	replaced alternative no_code 5 0
	replaced padded REPLACEMENT 5 3
.endr
#ifdef NEWER
	/* Since Linux 6.8 the hypervisor's calls are here. 6.12 has nested alternatives. */
	replaced hypervisor to_fast 6 5
	replaced plain no_code 1 0
	replaced quiet no_code 8 0
	replaced quiet no_code 16 0
#endif

	/* Each is relative to its own entry. */
	.section runtime_ptr_table, "a"
	.long constant - ., same_constant - .
	.section runtime_shift_table, "a"
	.long shift + 2 - .

	.section .altinstr_replacement, "ax"
to_fast:
	far 0xe9 fast
no_code:
other_code:
	.byte 0x0f, 0xae, 0xf0

	.section __jump_table, "a"
place __start___jump_table
	.long branch - ., branch_target - .
	TABLE_KEY(key)
	.long tracepoint - ., tracepoint_target - .
	TABLE_KEY(tracepoint_key)
place __stop___jump_table

	.section .rodata, "a"
	.ascii "Linux version 6.1.176 (lab@lab) (gcc) #1\n"

	.data
place key
	.fill 8, 8, 0
place __tracepoint_event
tracepoint_key:
	WORD 0, 0
	WORD __SCT__tp_func_event, __traceiter_event
	.fill 4, 8, 0
