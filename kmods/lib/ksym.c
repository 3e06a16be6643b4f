// SPDX-License-Identifier: GPL-2.0-only
/* Where is a kernel function or object that is not exported to modules? */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>

#include "ksym.h"

unsigned long ksym_lookup(const char *name)
{
	static typeof(kallsyms_lookup_name) *lookup;

	if (!lookup) {
		/*
		 * kallsyms_lookup_name() lost its export in 5.7, but registering a
		 * kprobe still resolves a name. Registered as disabled it writes
		 * nothing into the kernel's text.
		 */
		struct kprobe kp = {
			.symbol_name = "kallsyms_lookup_name",
			.flags = KPROBE_FLAG_DISABLED,
		};
		unsigned long address;

		if (register_kprobe(&kp))
			return 0;
		address = (unsigned long)kp.addr;
		unregister_kprobe(&kp);
		/* With IBT a kprobe goes behind the endbr that an indirect call needs. */
		if (endbr_at(address - sizeof(u32)))
			address -= sizeof(u32);
		lookup = (typeof(lookup))address;
	}
	return lookup(name);
}
