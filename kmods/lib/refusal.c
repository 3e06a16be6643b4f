// SPDX-License-Identifier: GPL-2.0-only
/* How does a module say why it refuses a probe point? */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/printk.h>

#include "refusal.h"

int refuse_point(const char *symbol, unsigned int offset, int err, const char *reason)
{
	pr_err("%s+0x%x: %s\n", symbol, offset, reason);
	return err;
}

int refuse_address(const void *address, int err, const char *reason)
{
	pr_err("%pS: %s\n", address, reason);
	return err;
}

const char *kprobe_refusal(int err)
{
	switch (err) {
	case -ENOENT:
		return "no such symbol";
	case -EILSEQ:
		return "not the first byte of an instruction";
	case -EINVAL:
		return "kprobes refuse it: blacklisted, patched by the kernel itself, or not kernel text";
	default:
		return "kprobes refuse it";
	}
}
