/* SPDX-License-Identifier: GPL-2.0-only */
/* What does one machine instruction do with the flow of control? */
#ifndef LAB_INSTRUCTION_H
#define LAB_INSTRUCTION_H

#include <linux/types.h>
#include <asm/insn.h>

/* Looks up the kernel's decoder; -EOPNOTSUPP where there is none. May sleep. */
int instruction_init(void);

/* Decodes the instruction at addr; false if it is none or reaches beyond end. */
bool instruction_decode(struct insn *insn, unsigned long addr, unsigned long end);

/* A jump, call or loop whose target is in the instruction itself. */
bool instruction_is_branch(const struct insn *insn);

/* Where such a branch leads. */
unsigned long instruction_target(const struct insn *insn);

/* A jump, not a call, through a register or memory. */
bool instruction_is_indirect_jump(const struct insn *insn);

/* A return of any kind, written out; one through a thunk is a jump. */
bool instruction_is_return(const struct insn *insn);

/* Nothing runs behind it: a jump, a return, a breakpoint, an undefined instruction. */
bool instruction_ends_flow(const struct insn *insn);

/* A no-op of any length, as compilers pad with. */
bool instruction_is_nop(const struct insn *insn);

/* An operand at a distance from the next instruction, as only amd64 has it. */
bool instruction_is_rip_relative(const struct insn *insn);

/*
 * Whether a copy, with its %rip-relative operand adjusted, does the same at
 * another address. False for everything that reads or changes the instruction
 * pointer, even where it could be rewritten.
 */
bool instruction_can_move(const struct insn *insn);

#endif
