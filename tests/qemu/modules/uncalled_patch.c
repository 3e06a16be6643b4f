// SPDX-License-Identifier: GPL-2.0-only
/* Patches a function that nothing calls, and leaves it patched. */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "ksym.h"

/* Kernel text is read-only where it is: it is written through another mapping of its page. */
static int __init uncalled_patch_init(void)
{
	unsigned long text = ksym_lookup("__ia32_sys_sethostname") + 1;
	struct page *page = virt_to_page((void *)text);
	u8 *alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);

	if (!alias)
		return -ENOMEM;
	alias[offset_in_page(text)] = 0xcc;
	vunmap(alias);
	return 0;
}

static void __exit uncalled_patch_exit(void)
{
}

module_init(uncalled_patch_init);
module_exit(uncalled_patch_exit);
MODULE_DESCRIPTION("Leaves an int3 in the kernel's text");
MODULE_LICENSE("GPL");
