// SPDX-License-Identifier: GPL-2.0-only
// A program that makes two system calls and ends.
void _start(void)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(110) : "rcx", "r11", "memory");
	__asm__ volatile("syscall" : "=a"(result) : "a"(231), "D"(0) : "rcx", "r11", "memory");
	__builtin_unreachable();
}
