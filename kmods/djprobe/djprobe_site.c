// SPDX-License-Identifier: GPL-2.0-only
/*
 * May the first instructions of a function be replaced by a jump?
 *
 * Only if no branch leads into the replaced bytes except to the first one, if
 * the instructions do the same at another address, and if nothing else patches
 * them. What cannot be decided counts as no.
 */
#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/static_call.h>
#include <asm/alternative.h>

#include "djprobe_reserve.h"
#include "djprobe_search.h"
#include "djprobe_site.h"
#include "djprobe_text.h"
#include "function.h"
#include "instruction.h"
#include "ksym.h"
#include "ktext.h"

static struct {
	typeof(within_kprobe_blacklist) *blacklisted;
	/* Null where the kernel is built without the feature. */
	typeof(ftrace_text_reserved) *ftrace_reserved;
	/* Gone with the alternatives of lock prefixes, in Linux 7.3. */
	int (*alternatives_reserved)(void *first, void *last);
	typeof(static_call_text_reserved) *static_call_reserved;
	typeof(jump_label_text_reserved) *jump_label_reserved;
	typeof(jump_label_lock) *jump_label_lock;
	typeof(jump_label_lock) *jump_label_unlock;
} site;

int djprobe_site_init(void)
{
	site.blacklisted = KSYM(within_kprobe_blacklist);
	site.ftrace_reserved = KSYM(ftrace_text_reserved);
	site.alternatives_reserved = (int (*)(void *, void *))ksym_lookup("alternatives_text_reserved");
	site.static_call_reserved = KSYM(static_call_text_reserved);
	site.jump_label_reserved = KSYM(jump_label_text_reserved);
	site.jump_label_lock = KSYM(jump_label_lock);
	site.jump_label_unlock = (typeof(site.jump_label_unlock))ksym_lookup("jump_label_unlock");

	if (!site.blacklisted)
		return -EOPNOTSUPP;
	if (site.jump_label_reserved && (!site.jump_label_lock || !site.jump_label_unlock))
		return -EOPNOTSUPP;
	return djprobe_text_init() ?: djprobe_search_init() ?: instruction_init();
}

/* Text that is freed when the module's initialisation ends. */
static bool is_init_text(unsigned long addr)
{
	struct module *module = djprobe_text_module((void *)addr);

	return module && within_module_init(addr, module);
}

/* What the kernel itself patches between first and last, as a refusal. */
static struct refusal reserved(void *first, void *last)
{
	bool label = false, alternative = false;

	if (site.ftrace_reserved && site.ftrace_reserved(first, last))
		return REFUSAL(EINVAL, "the function tracer's nop under the jump");
	if (site.static_call_reserved && site.static_call_reserved(first, last))
		return REFUSAL(EINVAL, "a static call under the jump");
	if (site.jump_label_reserved) {
		site.jump_label_lock();
		label = site.jump_label_reserved(first, last);
		site.jump_label_unlock();
	}
	if (label)
		return REFUSAL(EINVAL, "a jump label under the jump");
	if (site.alternatives_reserved) {
		ktext_lock();
		alternative = site.alternatives_reserved(first, last);
		ktext_unlock();
	}
	return alternative ? REFUSAL(EINVAL, "an alternative under the jump") : NO_REFUSAL;
}

#define TOO_SHORT	REFUSAL(EINVAL, "shorter than five bytes of whole instructions")

/* Takes whole instructions until a jump fits over them. */
static struct refusal measure(const struct function *function, size_t *replaced)
{
	unsigned long addr = function->entry;
	struct insn insn;

	while (addr < function->entry + JMP32_INSN_SIZE) {
		if (addr >= function->end)
			return TOO_SHORT;
		if (!instruction_decode(&insn, addr, function->end))
			return REFUSAL(EINVAL, "an instruction under the jump cannot be decoded");
		if (insn.opcode.bytes[0] == INT3_INSN_OPCODE)
			return REFUSAL(EINVAL, "a breakpoint in the function");
		if (instruction_is_return(&insn))
			return TOO_SHORT;
		if (!instruction_can_move(&insn))
			return REFUSAL(EINVAL, "an instruction under the jump cannot run out of line");
		addr += insn.length;
	}
	*replaced = addr - function->entry;
	/* Kprobes take the jump for the first instruction, and its end for the beginning of the next one. */
	if (*replaced > JMP32_INSN_SIZE && !djprobe_reserve_works())
		return REFUSAL(EOPNOTSUPP, "this kernel cannot keep other probes out of the bytes behind the jump");
	return NO_REFUSAL;
}

struct refusal djprobe_site_refusal(unsigned long addr, size_t *replaced)
{
	struct function function;
	struct refusal refusal;

	if (!djprobe_text_contains(addr))
		return REFUSAL(EINVAL, "not in the text of the kernel or a module");
	if (is_init_text(addr))
		return REFUSAL(EINVAL, "in text that is freed after the module's initialisation");
	if (!find_function(addr, &function) || addr != function.entry)
		return REFUSAL(EINVAL, "not a function entry (the instruction after endbr and the ftrace nop)");
	if (site.blacklisted(addr))
		return REFUSAL(EINVAL, "on the blacklist of kprobes");
	if (djprobe_text_is_probed(function.entry, function.end))
		return REFUSAL(EBUSY, "another probe in the function");
	refusal = measure(&function, replaced);
	if (refusal.err)
		return refusal;
	refusal = reserved((void *)addr, (void *)(addr + *replaced - 1));
	if (refusal.err)
		return refusal;
	return djprobe_search(&function, *replaced);
}
