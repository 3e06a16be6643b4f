// SPDX-License-Identifier: GPL-2.0-only
/* What does the kernel make of a kprobe at each address that it is given? */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sysfs.h>

#include "step.h"

static struct kprobe kp;
static bool registered;
static int err = -ENOENT;

static int nothing(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}
NOKPROBE_SYMBOL(nothing);

static void take(void)
{
	if (registered)
		unregister_kprobe(&kp);
	registered = false;
}

/* Takes the kprobe from where it was; it has no post-handler, so that the kernel may boost or optimise it. */
static int put(const char *value, const struct kernel_param *param)
{
	unsigned long address;
	int wrong = kstrtoul(value, 16, &address);

	if (wrong)
		return wrong;
	take();
	kp = (struct kprobe){
		.addr = (kprobe_opcode_t *)address,
		.pre_handler = nothing,
	};
	err = register_kprobe(&kp);
	registered = !err;
	return 0;
}

static int get(char *line, const struct kernel_param *param)
{
	return sysfs_emit(line, "%d %s\n", err, err ? "refused" : step_of(&kp));
}

static const struct kernel_param_ops ops = { .set = put, .get = get };
module_param_cb(place, &ops, NULL, 0644);

static int __init probe_places_init(void)
{
	return 0;
}

static void __exit probe_places_exit(void)
{
	take();
}

module_init(probe_places_init);
module_exit(probe_places_exit);
MODULE_DESCRIPTION("A kprobe at one address after the other");
MODULE_LICENSE("GPL");
