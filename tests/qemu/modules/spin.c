// SPDX-License-Identifier: GPL-2.0-only
/* A machine that hangs without a message. */
#include <linux/irqflags.h>
#include <linux/module.h>

static int __init spin_init(void)
{
	local_irq_disable();
	for (;;)
		cpu_relax();
	return 0;
}

module_init(spin_init);
MODULE_DESCRIPTION("Spins for ever with interrupts off");
MODULE_LICENSE("GPL");
