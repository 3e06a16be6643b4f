// SPDX-License-Identifier: GPL-2.0-only
/* Does any instruction of a function lead into the bytes under the jump? */
#include <linux/kallsyms.h>
#include <linux/string.h>

#include "djprobe_search.h"
#include "djprobe_text.h"
#include "instruction.h"

static const char indirect[] = "an indirect jump in the function";

struct search {
	const struct function *function;
	size_t replaced;
	unsigned long cold;	/* the cold part looked through last */
	bool in_cold;
};

static const char *scan(struct search *search, unsigned long start, unsigned long end);

/*
 * Compilers move code that seldom runs into a separate function, to which the
 * function jumps, and which jumps back.
 */
static const char *scan_cold_part(struct search *search, unsigned long target)
{
	struct function cold;
	const char *reason;

	/* A function has one cold part; the cold part of another function leads back to that one. */
	if (search->in_cold || !find_function(target, &cold) || cold.start == search->cold)
		return NULL;
	search->cold = cold.start;
	search->in_cold = true;
	reason = scan(search, cold.start, cold.end);
	search->in_cold = false;
	return reason;
}

/*
 * A jump out of the function is usually a tail call. A retpoline is a jump to a
 * thunk that jumps through a register. A return thunk is harmless: it ends the
 * function.
 */
static const char *check_jump_out(struct search *search, unsigned long target)
{
	char name[KSYM_SYMBOL_LEN];

	if (!djprobe_text_contains(target))
		return "a jump out of the kernel's text in the function";
	sprint_symbol_no_offset(name, target);
	if (strstarts(name, "__x86_indirect_"))
		return indirect;
	return strstr(name, ".cold") ? scan_cold_part(search, target) : NULL;
}

static const char *check_branch(struct search *search, const struct insn *insn)
{
	const struct function *function = search->function;
	unsigned long target = instruction_target(insn);

	/* A branch to the first byte runs into the jump, which is right. */
	if (target > function->entry && target < function->entry + search->replaced)
		return "a branch into the bytes under the jump";
	if (insn->opcode.bytes[0] == CALL_INSN_OPCODE)
		return NULL;
	if (target >= function->start && target < function->end)
		return NULL;
	return check_jump_out(search, target);
}

/* Looks through the instructions from start to end. */
static const char *scan(struct search *search, unsigned long start, unsigned long end)
{
	const char *reason;
	bool padding = false;
	struct insn insn;

	for (; start < end; start += insn.length) {
		/* Zeroes fill the page behind a module's last function. */
		if (padding && !memchr_inv((void *)start, 0, end - start))
			return NULL;
		if (!instruction_decode(&insn, start, end))
			return "an instruction of the function cannot be decoded";
		/* Compilers and linkers pad with int3 where nothing runs; elsewhere it is a breakpoint. */
		if (insn.opcode.bytes[0] == INT3_INSN_OPCODE && !padding)
			return "a breakpoint in the function";
		if (instruction_is_indirect_jump(&insn))
			return indirect;
		reason = instruction_is_branch(&insn) ? check_branch(search, &insn) : NULL;
		if (reason)
			return reason;
		padding = instruction_ends_flow(&insn) || (padding && instruction_is_nop(&insn));
	}
	return NULL;
}

const char *djprobe_search(const struct function *function, size_t replaced)
{
	struct search search = { .function = function, .replaced = replaced };

	return scan(&search, function->entry, function->end);
}
