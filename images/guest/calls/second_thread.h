// SPDX-License-Identifier: GPL-2.0-only
// A second thread of the process.
#ifndef SECOND_THREAD_H
#define SECOND_THREAD_H

#include "runtime.h"
#include <linux/sched.h>

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM | CLONE_THREAD };

// Runs a function that does not return.
static inline void start_thread(void (*body)(void))
{
	static struct {
		char bytes[16384];
		void (*body)(void);	// the thread takes it off its stack
		char end[16];
	} stack __attribute__((aligned(16)));
	long result;

	stack.body = body;
#ifdef __i386__
	__asm__ volatile("int $0x80; test %%eax, %%eax; jnz 1f; pop %%eax; call *%%eax; 1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "b"(THREAD), "c"(&stack.body), "d"(0), "S"(0), "D"(0)
			 : "memory");
#else
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;

	__asm__ volatile("syscall; test %%eax, %%eax; jnz 1f; pop %%rax; call *%%rax; 1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "D"(THREAD), "S"(&stack.body), "d"(0), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
#endif
	if (result < 0)
		exit_program(1);
}

#endif
