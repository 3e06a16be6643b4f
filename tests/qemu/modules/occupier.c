// SPDX-License-Identifier: GPL-2.0-only
/* Where do a module and a kprobe's copy lie, when others have used up the addresses they would have had? */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

static void *areas[1024];
static unsigned int taken;

/* Allocates "pages" more pages, each with a hole behind it, as devices' drivers do. */
static int take_pages(const char *value, const struct kernel_param *param)
{
	unsigned int pages;
	int err = kstrtouint(value, 0, &pages);

	for (; !err && pages; pages--) {
		if (taken == ARRAY_SIZE(areas))
			return -ENOSPC;
		areas[taken] = vmalloc(PAGE_SIZE);
		if (!areas[taken])
			return -ENOMEM;
		taken++;
	}
	return err;
}

/*
 * Occupies places for copies of instructions: of a kprobe that could have
 * been boosted they are cleaned up only when there are no others.
 */
static int take_slots(const char *value, const struct kernel_param *param)
{
	unsigned int slots;
	int err = kstrtouint(value, 0, &slots);

	for (; !err && slots; slots--) {
		struct kprobe kp = {
			.symbol_name = "kallsyms_lookup_name",
			.flags = KPROBE_FLAG_DISABLED,
		};

		err = register_kprobe(&kp);
		if (!err)
			unregister_kprobe(&kp);
	}
	return err;
}

static const struct kernel_param_ops pages_ops = { .set = take_pages };
static const struct kernel_param_ops slots_ops = { .set = take_slots };
module_param_cb(pages, &pages_ops, NULL, 0200);
module_param_cb(slots, &slots_ops, NULL, 0200);

static int __init occupier_init(void)
{
	return 0;
}

static void __exit occupier_exit(void)
{
	while (taken)
		vfree(areas[--taken]);
}

module_init(occupier_init);
module_exit(occupier_exit);
MODULE_DESCRIPTION("Moves the modules and the kprobes that come after it");
MODULE_LICENSE("GPL");
