/* SPDX-License-Identifier: GPL-2.0-only */
/* A dispatch as arch/x86/entry/syscall_32.c has it since Linux 6.9: a switch. */
#define CALLS(X) X(0) X(1) X(2) X(3) X(5) X(6) X(7) X(9) X(20) X(21) X(22) X(40) X(41) X(43)

#define FUNCTION(n) \
	__attribute__((noinline)) long __ia32_sys_call##n(const void *regs) \
	{ \
		asm volatile("" : : "r"(regs)); \
		return n; \
	}
CALLS(FUNCTION)
FUNCTION(99)

#define CASE(n) \
	case n: \
		return __ia32_sys_call##n(regs);

long ia32_sys_call(const void *regs, unsigned int nr)
{
	switch (nr) {
	CALLS(CASE)
	default:
		return __ia32_sys_call99(regs);
	}
}

void _start(void)
{
}
