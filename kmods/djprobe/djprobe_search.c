// SPDX-License-Identifier: GPL-2.0-only
/* Does any instruction of a function lead into the bytes under the jump? */
#include <linux/errno.h>
#include <linux/extable.h>
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "djprobe_search.h"
#include "djprobe_text.h"
#include "instruction.h"
#include "ksym.h"

#define INDIRECT_JUMP	REFUSAL(EINVAL, "an indirect jump in the function")

static typeof(search_exception_tables) *exception_table;

int djprobe_search_init(void)
{
	exception_table = KSYM(search_exception_tables);
	return exception_table ? 0 : -EOPNOTSUPP;
}

struct search {
	const struct function *function;
	size_t replaced;
	unsigned long cold;	/* the cold part looked through last */
	bool in_cold;
};

static struct refusal scan(struct search *search, unsigned long start, unsigned long end);

/*
 * Compilers move code that seldom runs into a separate function, to which the
 * function jumps, and which jumps back.
 */
static struct refusal scan_cold_part(struct search *search, unsigned long target)
{
	struct function cold;
	struct refusal refusal;

	/* A function has one cold part; the cold part of another function leads back to that one. */
	if (search->in_cold || !find_function(target, &cold) || cold.start == search->cold)
		return NO_REFUSAL;
	search->cold = cold.start;
	search->in_cold = true;
	refusal = scan(search, cold.start, cold.end);
	search->in_cold = false;
	return refusal;
}

/*
 * A jump out of the function is usually a tail call. A retpoline is a jump to a
 * thunk that jumps through a register. A return thunk is harmless: it ends the
 * function.
 */
static struct refusal check_jump_out(struct search *search, unsigned long target)
{
	char name[KSYM_SYMBOL_LEN];

	if (!djprobe_text_contains(target))
		return REFUSAL(EINVAL, "a jump out of the kernel's text in the function");
	sprint_symbol_no_offset(name, target);
	if (strstarts(name, "__x86_indirect_"))
		return INDIRECT_JUMP;
	return strstr(name, ".cold") ? scan_cold_part(search, target) : NO_REFUSAL;
}

static struct refusal check_branch(struct search *search, const struct insn *insn)
{
	const struct function *function = search->function;
	unsigned long target = instruction_target(insn);

	/* A branch to the first byte runs into the jump, which is right. */
	if (target > function->entry && target < function->entry + search->replaced)
		return REFUSAL(EINVAL, "a branch into the bytes under the jump");
	if (insn->opcode.bytes[0] == CALL_INSN_OPCODE)
		return NO_REFUSAL;
	if (target >= function->start && target < function->end)
		return NO_REFUSAL;
	return check_jump_out(search, target);
}

/* Looks through the instructions from start to end. */
static struct refusal scan(struct search *search, unsigned long start, unsigned long end)
{
	struct refusal refusal;
	bool padding = false;
	struct insn insn;

	for (; start < end; start += insn.length) {
		/* Zeroes fill the page behind a module's last function. */
		if (padding && !memchr_inv((void *)start, 0, end - start))
			return NO_REFUSAL;
		if (!instruction_decode(&insn, start, end))
			return REFUSAL(EINVAL, "an instruction of the function cannot be decoded");
		/* Compilers and linkers pad with int3 where nothing runs; elsewhere it is a breakpoint. */
		if (insn.opcode.bytes[0] == INT3_INSN_OPCODE && !padding)
			return REFUSAL(EINVAL, "a breakpoint in the function");
		/*
		 * Its fixup may lead anywhere into the function. Kprobes, too, optimise
		 * none in such a function (can_optimize() of arch/x86/kernel/kprobes/opt.c).
		 */
		if (exception_table(start))
			return REFUSAL(EINVAL, "an instruction of the function may fault and be fixed up");
		if (instruction_is_indirect_jump(&insn))
			return INDIRECT_JUMP;
		refusal = instruction_is_branch(&insn) ? check_branch(search, &insn) : NO_REFUSAL;
		if (refusal.err)
			return refusal;
		padding = instruction_ends_flow(&insn) || (padding && instruction_is_nop(&insn));
	}
	return NO_REFUSAL;
}

struct refusal djprobe_search(const struct function *function, size_t replaced)
{
	struct search search = { .function = function, .replaced = replaced };

	return scan(&search, function->entry, function->end);
}
