// SPDX-License-Identifier: GPL-2.0-only
/*
 * May the first instructions of a function be replaced by a jump?
 *
 * Only if no branch leads into the replaced bytes except to the first one, if
 * the instructions do the same at another address, and if nothing else patches
 * them. What cannot be decided counts as no.
 */
#include <linux/errno.h>
#include <linux/extable.h>
#include <linux/ftrace.h>
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/static_call.h>
#include <asm/alternative.h>

#include "djprobe_search.h"
#include "djprobe_site.h"
#include "djprobe_text.h"
#include "function.h"
#include "instruction.h"
#include "ksym.h"
#include "ktext.h"

static struct {
	typeof(within_kprobe_blacklist) *blacklisted;
	typeof(search_exception_tables) *in_exception_table;
	/* Null where the kernel is built without the feature. */
	typeof(ftrace_text_reserved) *ftrace_reserved;
	typeof(alternatives_text_reserved) *alternatives_reserved;
	typeof(static_call_text_reserved) *static_call_reserved;
	typeof(jump_label_text_reserved) *jump_label_reserved;
	typeof(jump_label_lock) *jump_label_lock;
	typeof(jump_label_lock) *jump_label_unlock;
} site;

int djprobe_site_init(void)
{
	site.blacklisted = KSYM(within_kprobe_blacklist);
	site.in_exception_table = KSYM(search_exception_tables);
	site.ftrace_reserved = KSYM(ftrace_text_reserved);
	site.alternatives_reserved = KSYM(alternatives_text_reserved);
	site.static_call_reserved = KSYM(static_call_text_reserved);
	site.jump_label_reserved = KSYM(jump_label_text_reserved);
	site.jump_label_lock = KSYM(jump_label_lock);
	site.jump_label_unlock = (typeof(site.jump_label_unlock))ksym_lookup("jump_label_unlock");

	if (!site.blacklisted || !site.in_exception_table)
		return -EOPNOTSUPP;
	if (site.jump_label_reserved && (!site.jump_label_lock || !site.jump_label_unlock))
		return -EOPNOTSUPP;
	return djprobe_text_init() ?: instruction_init();
}

/* Text that is freed when the module's initialisation ends. */
static bool is_init_text(unsigned long addr)
{
	struct module *module = djprobe_text_module((void *)addr);

	return module && within_module_init(addr, module);
}

/* What the kernel itself patches between first and last; NULL where it is nothing. */
static const char *reserved(void *first, void *last)
{
	bool label = false, alternative = false;

	if (site.ftrace_reserved && site.ftrace_reserved(first, last))
		return "the function tracer's nop under the jump";
	if (site.static_call_reserved && site.static_call_reserved(first, last))
		return "a static call under the jump";
	if (site.jump_label_reserved) {
		site.jump_label_lock();
		label = site.jump_label_reserved(first, last);
		site.jump_label_unlock();
	}
	if (label)
		return "a jump label under the jump";
	if (site.alternatives_reserved) {
		ktext_lock();
		alternative = site.alternatives_reserved(first, last);
		ktext_unlock();
	}
	return alternative ? "an alternative under the jump" : NULL;
}

static const char too_short[] = "shorter than five bytes of whole instructions";

/* Takes whole instructions until a jump fits over them. */
static const char *measure(const struct function *function, size_t *replaced)
{
	unsigned long addr = function->entry;
	struct insn insn;

	while (addr < function->entry + JMP32_INSN_SIZE) {
		if (addr >= function->end)
			return too_short;
		if (!instruction_decode(&insn, addr, function->end))
			return "an instruction under the jump cannot be decoded";
		if (insn.opcode.bytes[0] == INT3_INSN_OPCODE)
			return "a breakpoint in the function";
		if (instruction_is_return(&insn))
			return too_short;
		if (!instruction_can_move(&insn))
			return "an instruction under the jump cannot run out of line";
		if (site.in_exception_table(addr))
			return "an instruction under the jump may fault and be fixed up";
		addr += insn.length;
	}
	*replaced = addr - function->entry;
	return NULL;
}

const char *djprobe_site_refusal(unsigned long addr, size_t *replaced)
{
	struct function function;
	const char *reason;

	if (!djprobe_text_contains(addr))
		return "not in the text of the kernel or a module";
	if (is_init_text(addr))
		return "in text that is freed after the module's initialisation";
	if (!find_function(addr, &function) || addr != function.entry)
		return "not a function entry (the instruction after endbr and the ftrace nop)";
	if (site.blacklisted(addr))
		return "on the blacklist of kprobes";
	if (djprobe_text_is_probed(function.entry, function.end))
		return "another probe in the function";
	reason = measure(&function, replaced);
	if (reason)
		return reason;
	reason = reserved((void *)addr, (void *)(addr + *replaced - 1));
	if (reason)
		return reason;
	return djprobe_search(&function, *replaced);
}
