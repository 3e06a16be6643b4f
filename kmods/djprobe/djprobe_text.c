// SPDX-License-Identifier: GPL-2.0-only
/* What does the kernel know about an address in its text? */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/preempt.h>

#include "djprobe_text.h"
#include "ksym.h"

static struct {
	typeof(core_kernel_text) *in_kernel;
	typeof(__module_text_address) *module_at;
	typeof(get_kprobe) *get_kprobe;
} text;

int djprobe_text_init(void)
{
	text.in_kernel = KSYM(core_kernel_text);
	text.module_at = KSYM(__module_text_address);
	text.get_kprobe = KSYM(get_kprobe);

	return text.in_kernel && text.module_at && text.get_kprobe ? 0 : -EOPNOTSUPP;
}

bool djprobe_text_contains(unsigned long addr)
{
	return text.in_kernel(addr) || djprobe_text_module((void *)addr);
}

struct module *djprobe_text_module(const void *addr)
{
	struct module *module;

	preempt_disable();
	module = text.module_at((unsigned long)addr);
	preempt_enable();
	return module;
}

bool djprobe_text_hold(const void *addr, struct module **module)
{
	bool held = true;

	/* Between the lookup and the reference the module must not be freed. */
	preempt_disable();
	*module = text.module_at((unsigned long)addr);
	if (*module == THIS_MODULE)
		*module = NULL;
	else if (*module)
		held = try_module_get(*module);
	preempt_enable();
	return held;
}

struct kprobe *djprobe_text_kprobe(void *addr)
{
	struct kprobe *kp;

	preempt_disable();
	kp = text.get_kprobe(addr);
	preempt_enable();
	return kp;
}

bool djprobe_text_is_alone(const struct kprobe *kp)
{
	struct kprobe *there = djprobe_text_kprobe(kp->addr);

	/* What is not kp itself has a list of all that it stands for. */
	return there == kp || (there && list_is_singular(&there->list));
}

bool djprobe_text_is_probed(unsigned long start, unsigned long end)
{
	for (; start < end; start++)
		if (djprobe_text_kprobe((void *)start))
			return true;
	return false;
}
