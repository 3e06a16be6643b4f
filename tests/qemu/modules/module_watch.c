// SPDX-License-Identifier: GPL-2.0-only
/*
 * What may happen between a module's exit function and the end of its parameters?
 * There a window is that has the module's name.
 */
#include <linux/module.h>
#include <linux/notifier.h>

#include "window.h"

static int on_change(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;

	if (state == MODULE_STATE_GOING)
		window_open(module->name);
	return NOTIFY_OK;
}

static struct notifier_block changes = { .notifier_call = on_change };

static int __init module_watch_init(void)
{
	return register_module_notifier(&changes);
}

static void __exit module_watch_exit(void)
{
	unregister_module_notifier(&changes);
}

module_init(module_watch_init);
module_exit(module_watch_exit);
MODULE_DESCRIPTION("Runs a script when a module has ended");
MODULE_LICENSE("GPL");
