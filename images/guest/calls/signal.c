// SPDX-License-Identifier: GPL-2.0-only
// Sends itself a signal, whose handler returns.
#include "workload.h"
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

static long pid;

static void handle(int signal)
{
	(void)signal;
}

void workload_setup(void)
{
	struct action action = {handle, SA_RESTORER | SA_SIGINFO, return_from_handler, 0};

	sys4(SYS_rt_sigaction, SIGUSR1, &action, 0, sizeof(action.mask));
	pid = sys0(SYS_getpid);
}

void workload(void)
{
	sys2(SYS_kill, pid, SIGUSR1);
}
