// SPDX-License-Identifier: GPL-2.0-only
/*
 * May the first instructions of a function be replaced by a jump?
 *
 * Only if nobody can come to the replaced bytes but through their first one,
 * if the instructions do the same at another address, and if nobody else
 * patches them. What cannot be decided counts as no.
 */
#include <linux/errno.h>
#include <linux/extable.h>
#include <linux/ftrace.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/preempt.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <asm/alternative.h>

#include "djprobe_site.h"
#include "function.h"
#include "instruction.h"
#include "ksym.h"
#include "ktext.h"

static struct {
	typeof(core_kernel_text) *in_kernel;
	typeof(get_kprobe) *get_kprobe;
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
	site.in_kernel = KSYM(core_kernel_text);
	site.get_kprobe = KSYM(get_kprobe);
	site.in_exception_table = KSYM(search_exception_tables);
	site.ftrace_reserved = KSYM(ftrace_text_reserved);
	site.alternatives_reserved = KSYM(alternatives_text_reserved);
	site.static_call_reserved = KSYM(static_call_text_reserved);
	site.jump_label_reserved = KSYM(jump_label_text_reserved);
	site.jump_label_lock = KSYM(jump_label_lock);
	site.jump_label_unlock = (typeof(site.jump_label_unlock))ksym_lookup("jump_label_unlock");

	if (!site.in_kernel || !site.get_kprobe || !site.in_exception_table)
		return -EOPNOTSUPP;
	if (site.jump_label_reserved && (!site.jump_label_lock || !site.jump_label_unlock))
		return -EOPNOTSUPP;
	return instruction_init();
}

struct kprobe *djprobe_site_kprobe(void *addr)
{
	struct kprobe *kp;

	preempt_disable();
	kp = site.get_kprobe(addr);
	preempt_enable();
	return kp;
}

bool djprobe_site_probed(unsigned long start, unsigned long end)
{
	for (; start < end; start++)
		if (djprobe_site_kprobe((void *)start))
			return true;
	return false;
}

/* Whether the kernel itself patches any byte from first to last. */
static bool is_reserved(void *first, void *last)
{
	bool reserved = false;

	if (site.ftrace_reserved)
		reserved |= site.ftrace_reserved(first, last);
	if (site.static_call_reserved)
		reserved |= site.static_call_reserved(first, last);
	if (site.jump_label_reserved) {
		site.jump_label_lock();
		reserved |= site.jump_label_reserved(first, last);
		site.jump_label_unlock();
	}
	if (site.alternatives_reserved) {
		ktext_lock();
		reserved |= site.alternatives_reserved(first, last);
		ktext_unlock();
	}
	return reserved;
}

/* Takes whole instructions until a jump fits over them. */
static const char *measure(const struct function *function, size_t *replaced)
{
	unsigned long addr = function->entry;
	struct insn insn;

	while (addr < function->entry + JMP32_INSN_SIZE) {
		if (addr >= function->end || !instruction_decode(&insn, addr, function->end))
			return "the function has no whole instructions of five bytes";
		if (!instruction_can_move(&insn))
			return "an instruction under the jump cannot run out of line";
		if (site.in_exception_table(addr))
			return "an instruction under the jump may fault and be fixed up";
		addr += insn.length;
	}
	*replaced = addr - function->entry;
	return NULL;
}

/*
 * A retpoline is a direct jump to a thunk that jumps through a register. A
 * return thunk is no such thing: it ends a function.
 */
static bool is_indirect_jump(const struct insn *insn)
{
	char name[KSYM_SYMBOL_LEN];
	unsigned long target;

	if (instruction_is_indirect_jump(insn))
		return true;
	if (!instruction_is_branch(insn) || insn->opcode.bytes[0] == CALL_INSN_OPCODE)
		return false;
	target = instruction_target(insn);
	if (!site.in_kernel(target))
		return true;
	sprint_symbol_no_offset(name, target);
	return strstarts(name, "__x86_indirect_");
}

/*
 * Looks through the instructions from start to end for a way into the middle
 * of the replaced bytes. A branch to the first of them only meets the jump.
 */
static const char *scan(unsigned long start, unsigned long end, unsigned long first, size_t replaced)
{
	bool padding = false;
	struct insn insn;

	for (; start < end; start += insn.length) {
		if (!instruction_decode(&insn, start, end))
			return "an instruction of the function cannot be decoded";
		/* Compilers and linkers put int3 where nothing runs; elsewhere it is a debugger's. */
		if (insn.opcode.bytes[0] == INT3_INSN_OPCODE && !padding)
			return "a breakpoint in the function";
		if (is_indirect_jump(&insn))
			return "an indirect jump in the function";
		if (instruction_is_branch(&insn)) {
			unsigned long target = instruction_target(&insn);

			if (target > first && target < first + replaced)
				return "a branch into the bytes under the jump";
		}
		padding = instruction_ends_flow(&insn) || (padding && instruction_is_nop(&insn));
	}
	return NULL;
}

/* Compilers move what runs seldom into a function of its own, which jumps back. */
static const char *scan_cold_part(const struct function *function, size_t replaced)
{
	char name[KSYM_SYMBOL_LEN];
	struct function cold;
	unsigned long addr;

	sprint_symbol_no_offset(name, function->start);
	if (strlcat(name, ".cold", sizeof(name)) >= sizeof(name))
		return NULL;
	addr = ksym_lookup(name);
	if (!addr || !find_function(addr, &cold))
		return NULL;
	return scan(cold.start, cold.end, function->entry, replaced);
}

const char *djprobe_site_refusal(unsigned long addr, size_t *replaced)
{
	struct function function;
	const char *reason;

	if (!site.in_kernel(addr))
		return "not in the text of the kernel proper";
	if (!find_function(addr, &function) || addr != function.entry)
		return "not a function entry (the instruction after endbr and the ftrace nop)";
	if (djprobe_site_probed(function.entry, function.end))
		return "another probe in the function";
	reason = measure(&function, replaced);
	if (reason)
		return reason;
	if (is_reserved((void *)addr, (void *)(addr + *replaced - 1)))
		return "the kernel itself patches the bytes under the jump";
	reason = scan(function.entry, function.end, addr, *replaced);
	if (reason)
		return reason;
	return scan_cold_part(&function, *replaced);
}
