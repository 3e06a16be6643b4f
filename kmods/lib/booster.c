// SPDX-License-Identifier: GPL-2.0-only
/* How does a module boost a kprobe, which then needs no single step, where the kernel does not? */
#include <linux/kprobes.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <asm/text-patching.h>

#include "booster.h"
#include "booster_slot.h"
#include "instruction.h"
#include "ktext.h"

const char *booster_prepare(unsigned long addr)
{
	u8 buffer[MAX_INSN_SIZE + JMP32_INSN_SIZE];
	struct insn insn;
	u8 jump[JMP32_INSN_SIZE];

	if (ktext_init() || instruction_init())
		return "this kernel lacks a function that the booster needs";
	if (!instruction_decode(&insn, addr, addr + MAX_INSN_SIZE))
		return "the instruction cannot be decoded";
	if (!instruction_can_move(&insn))
		return "the instruction does not do the same at another address";
	memcpy(buffer, (const void *)addr, insn.length);
	if (instruction_is_rip_relative(&insn)) {
		long distance = insn.displacement.value - ((long)booster_slot - (long)addr);
		s32 displacement = distance;

		if (displacement != distance)
			return "an operand is out of the copy's reach";
		memcpy(buffer + insn_offset_displacement(&insn), &displacement, sizeof(displacement));
	}
	__text_gen_insn(jump, JMP32_INSN_OPCODE, booster_slot + insn.length, (const u8 *)addr + insn.length,
			JMP32_INSN_SIZE);
	memcpy(buffer + insn.length, jump, sizeof(jump));
	ktext_copy(booster_slot, buffer, insn.length + sizeof(jump));
	return NULL;
}

void booster_drain(void)
{
	synchronize_rcu_tasks();
}

void booster_go(struct pt_regs *regs)
{
	regs->ip = (unsigned long)booster_slot;
}
NOKPROBE_SYMBOL(booster_go);
