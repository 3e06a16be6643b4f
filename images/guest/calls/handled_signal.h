// SPDX-License-Identifier: GPL-2.0-only
// A handler of a signal, which does nothing.
#ifndef HANDLED_SIGNAL_H
#define HANDLED_SIGNAL_H

#include "runtime.h"
#include <asm/signal.h>

#define TEXT(word) #word
#define NUMBER(word) TEXT(word)

void return_from_handler(void);
__asm__("return_from_handler:\n"
#ifdef __i386__
	"	mov $" NUMBER(__NR_rt_sigreturn) ", %eax\n"
	"	int $0x80\n");
#else
	"	mov $" NUMBER(__NR_rt_sigreturn) ", %eax\n"
	"	syscall\n");
#endif

// The kernel's struct sigaction; that of <asm/signal.h> is the one before rt_sigaction.
struct action {
	void (*handler)(int signal);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static void handle(int signal)
{
	(void)signal;
}

static inline void handle_signal(int signal)
{
	struct action action = {handle, SA_RESTORER | SA_SIGINFO, return_from_handler, 0};

	sys4(SYS_rt_sigaction, signal, &action, 0, sizeof(action.mask));
}

#endif
