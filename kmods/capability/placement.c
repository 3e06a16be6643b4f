// SPDX-License-Identifier: GPL-2.0-only
/* Which of a function's instructions take a kprobe? */
#include <linux/math.h>
#include <linux/string.h>

#include "instruction.h"
#include "placement.h"

static void stay_single_stepped(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(stay_single_stepped);

static bool leaves_straight_line(const struct insn *insn)
{
	return instruction_ends_flow(insn) ||
	       (instruction_is_branch(insn) && insn->opcode.bytes[0] != CALL_INSN_OPCODE);
}

/* Decodes the instruction at addr, if there is one. int3 is padding, where nothing runs. */
static bool is_instruction(struct insn *insn, unsigned long addr, const struct function *function)
{
	return addr < function->end && instruction_decode(insn, addr, function->end) &&
	       insn->opcode.bytes[0] != INT3_INSN_OPCODE;
}

static unsigned int count_instructions(const struct function *function)
{
	unsigned long addr = function->entry;
	unsigned int count = 0;
	struct insn insn;

	for (; is_instruction(&insn, addr, function); addr += insn.length)
		count++;
	return count;
}

static void try_place(struct placement *placement, unsigned long addr, kprobe_pre_handler_t handler, bool straight)
{
	struct kprobe *kp = &placement->kprobes[placement->taken];

	placement->places++;
	*kp = (struct kprobe){
		.addr = (kprobe_opcode_t *)addr,
		.pre_handler = handler,
		.post_handler = stay_single_stepped,
	};
	if (register_kprobe(kp))
		return;
	if (straight)
		placement->straight = placement->taken;
	placement->taken++;
}

void placement_put_in(struct placement *placement, const struct function *function, unsigned int most,
		      kprobe_pre_handler_t handler)
{
	unsigned int number, every = DIV_ROUND_UP(count_instructions(function), most);
	unsigned long addr = function->entry;
	bool straight = true;
	struct insn insn;

	memset(placement, 0, sizeof(*placement));
	for (number = 0; is_instruction(&insn, addr, function); number++, addr += insn.length) {
		if (number % every == 0)
			try_place(placement, addr, handler, straight);
		if (leaves_straight_line(&insn))
			straight = false;
	}
}

void placement_take_out(struct placement *placement)
{
	static struct kprobe *all[PLACEMENT_MAX];
	unsigned int number;

	for (number = 0; number < placement->taken; number++)
		all[number] = &placement->kprobes[number];
	/* All at once: unregistering each would wait for RCU each time. */
	unregister_kprobes(all, placement->taken);
	placement->taken = 0;
}
