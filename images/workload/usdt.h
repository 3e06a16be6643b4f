// SPDX-License-Identifier: GPL-2.0-only
// Static probe points of a program (USDT), as tracers find them: a nop, and a note that says where it is. The note has the
// form of version 3 of <sys/sdt.h>, which SystemTap, perf, bpftrace and libbpf read.
//
//   USDT(lab, entered);                 a point that is passed whether it is probed or not
//
//   USDT_SEMAPHORE(lab, rare);          outside of functions: the kernel counts the probes of the point in it
//   if (USDT_IS_PROBED(lab, rare))
//           USDT_COUNTED(lab, rare);
//
// On x86_64 the kernel optimises a uprobe at one kind of nop: of 5 bytes in Linux 6.18 to 7.1, of these 10 since 7.2.
//
//   USDT_AT(USDT_NOP10, lab, fast);     a point with that nop; USDT() has a nop of one byte, which is never optimised
#ifndef USDT_H
#define USDT_H

#ifdef __i386__
#define USDT_ADDRESS ".4byte "
#else
#define USDT_ADDRESS ".8byte "
#endif

#define USDT_SEMAPHORE_OF(provider, name) provider##_##name##_semaphore

#define USDT_SEMAPHORE(provider, name)								\
	volatile unsigned short USDT_SEMAPHORE_OF(provider, name) __attribute__((section(".probes"), used))

#define USDT_IS_PROBED(provider, name) __builtin_expect(USDT_SEMAPHORE_OF(provider, name) != 0, 0)

#define USDT_NOP "nop"
#define USDT_NOP5 ".byte 0x0f, 0x1f, 0x44, 0, 0"
#define USDT_NOP10 ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0"

// Addresses: of the nop, of a byte that tells how far the program was moved after it was linked, of the semaphore.
#define USDT_NOTE(nop, provider, name, semaphore)						\
	__asm__ volatile("990:	" nop "\n"							\
			 "	.pushsection .note.stapsdt, \"\", \"note\"\n"			\
			 "	.balign 4\n"							\
			 "	.4byte 992f - 991f, 994f - 993f, 3\n"				\
			 "991:	.asciz \"stapsdt\"\n"						\
			 "992:	.balign 4\n"							\
			 "993:	" USDT_ADDRESS "990b, _.stapsdt.base, " semaphore "\n"		\
			 "	.asciz \"" #provider "\"\n"					\
			 "	.asciz \"" #name "\"\n"						\
			 "	.asciz \"\"\n"							\
			 "994:	.balign 4\n"							\
			 "	.popsection\n"							\
			 "	.ifndef _.stapsdt.base\n"					\
			 "	.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
			 "	.weak _.stapsdt.base\n"						\
			 "	.hidden _.stapsdt.base\n"					\
			 "_.stapsdt.base: .space 1\n"						\
			 "	.size _.stapsdt.base, 1\n"					\
			 "	.popsection\n"							\
			 "	.endif\n")

#define USDT_AT(nop, provider, name) USDT_NOTE(nop, provider, name, "0")
#define USDT(provider, name) USDT_AT(USDT_NOP, provider, name)
#define USDT_COUNTED(provider, name) USDT_NOTE(USDT_NOP, provider, name, #provider "_" #name "_semaphore")

#endif
