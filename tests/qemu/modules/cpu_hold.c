// SPDX-License-Identifier: GPL-2.0-only
/* How is a CPU held between two instructions of a function that cannot be probed? */
#include <linux/irqflags.h>
#include <linux/kdebug.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <asm/debugreg.h>

#include "cpu_hold.h"

enum { LIMIT_MS = 1500 };

struct cpu_hold cpu_hold;

/* Saves every register and the flags, calls cpu_hold_wait(), and goes on at cpu_hold.address. */
void cpu_hold_detour(void);
void cpu_hold_wait(void);

/*
 * At a pause an emulator that runs one CPU at a time turns to the next. With
 * nothing but pauses it would hardly turn to its timers.
 */
void cpu_hold_pass_ms(void)
{
	u64 end = ktime_get_mono_fast_ns() + NSEC_PER_MSEC;

	while (ktime_get_mono_fast_ns() < end)
		;
	cpu_relax();
}

void cpu_hold_wait(void)
{
	int left = LIMIT_MS;

	/* The exception's exit may have switched it on again. */
	set_debugreg(0UL, 7);
	cpu_hold.interrupts = !irqs_disabled();
	smp_store_release(&cpu_hold.reached, true);
	while (!smp_load_acquire(&cpu_hold.released) && left--)
		cpu_hold_pass_ms();
	cpu_hold.timed_out = left < 0;
}

/*
 * Waiting in here would be waiting in what the kernel takes for an NMI, with
 * interrupts off. So only leave for where the waiting is done.
 */
static int on_exception(struct notifier_block *block, unsigned long reason, void *data)
{
	struct die_args *args = data;

	if (reason != DIE_DEBUG || args->regs->ip != cpu_hold.address)
		return NOTIFY_DONE;
	set_debugreg(0UL, 7);
	args->regs->ip = (unsigned long)cpu_hold_detour;
	return NOTIFY_STOP;
}

static struct notifier_block exceptions = { .notifier_call = on_exception };

void cpu_hold_prepare(unsigned long address)
{
	memset(&cpu_hold, 0, sizeof(cpu_hold));
	cpu_hold.address = address;
}

void cpu_hold_arm(void)
{
	/* The kernel's own breakpoints come first, and keep to themselves what is not a thread's. */
	current->thread.virtual_dr6 |= DR_TRAP0;
	set_debugreg(cpu_hold.address, 0);
	set_debugreg((unsigned long)DR_GLOBAL_ENABLE, 7);
}

void cpu_hold_disarm(void)
{
	set_debugreg(0UL, 7);
	set_debugreg(0UL, 0);
	current->thread.virtual_dr6 &= ~DR_TRAP0;
}

void cpu_hold_release(void)
{
	smp_store_release(&cpu_hold.released, true);
}

int cpu_hold_init(void)
{
	return register_die_notifier(&exceptions);
}

void cpu_hold_exit(void)
{
	unregister_die_notifier(&exceptions);
}
