// SPDX-License-Identifier: GPL-2.0-only
/*
 * What does one machine instruction do with the flow of control?
 *
 * Opcodes as in the opcode map of Intel's Software Developer's Manual, volume
 * 2, appendix A; in an extended opcode modrm's middle field is part of it.
 */
#include <linux/errno.h>
#include <linux/minmax.h>

#include "instruction.h"
#include "ksym.h"

#define TWO_BYTE	0x0f

static typeof(insn_decode) *decode;

int instruction_init(void)
{
	decode = KSYM(insn_decode);
	return decode ? 0 : -EOPNOTSUPP;
}

bool instruction_decode(struct insn *insn, unsigned long addr, unsigned long end)
{
	int size = min_t(unsigned long, end - addr, MAX_INSN_SIZE);

	return !decode(insn, (const void *)addr, size, INSN_MODE_KERN);
}

static u8 extension(const struct insn *insn)
{
	return X86_MODRM_REG(insn->modrm.bytes[0]);
}

/* xbegin, which jumps to where its transaction aborts to. */
static bool is_xbegin(const struct insn *insn)
{
	return insn->opcode.bytes[0] == 0xc7 && insn->modrm.bytes[0] == 0xf8;
}

bool instruction_is_branch(const struct insn *insn)
{
	switch (insn->opcode.bytes[0]) {
	case 0x70 ... 0x7f:	/* jcc rel8 */
	case 0xe0 ... 0xe3:	/* loop, jcxz */
	case 0xe8:		/* call */
	case 0xe9:		/* jmp rel32 */
	case 0xeb:		/* jmp rel8 */
		return true;
	case TWO_BYTE:		/* jcc rel32 */
		return (insn->opcode.bytes[1] & 0xf0) == 0x80;
	default:
		return is_xbegin(insn);
	}
}

unsigned long instruction_target(const struct insn *insn)
{
	return (unsigned long)insn->kaddr + insn->length + insn->immediate.value;
}

bool instruction_is_indirect_jump(const struct insn *insn)
{
	switch (insn->opcode.bytes[0]) {
	case 0xff:
		return extension(insn) == 4 || extension(insn) == 5;
	case 0xea:		/* jmp far */
		return true;
	default:
		return false;
	}
}

bool instruction_is_return(const struct insn *insn)
{
	switch (insn->opcode.bytes[0]) {
	case 0xc2:		/* ret */
	case 0xc3:
	case 0xca:		/* ret far */
	case 0xcb:
	case 0xcf:		/* iret */
		return true;
	default:
		return false;
	}
}

bool instruction_ends_flow(const struct insn *insn)
{
	switch (insn->opcode.bytes[0]) {
	case 0xcc:		/* int3 */
	case 0xe9:		/* jmp */
	case 0xeb:
		return true;
	case TWO_BYTE:		/* ud2, ud1, ud0 */
		return insn->opcode.bytes[1] == 0x0b || insn->opcode.bytes[1] == 0xb9 ||
		       insn->opcode.bytes[1] == 0xff;
	default:
		return instruction_is_return(insn) || instruction_is_indirect_jump(insn);
	}
}

bool instruction_is_nop(const struct insn *insn)
{
	return insn->opcode.bytes[0] == 0x90 ||
	       (insn->opcode.bytes[0] == TWO_BYTE && insn->opcode.bytes[1] == 0x1f);
}

bool instruction_is_rip_relative(const struct insn *insn)
{
	u8 modrm = insn->modrm.bytes[0];

	return insn->x86_64 && insn->modrm.nbytes &&
	       X86_MODRM_MOD(modrm) == 0 && X86_MODRM_RM(modrm) == 5;
}

bool instruction_can_move(const struct insn *insn)
{
	if (instruction_is_branch(insn) || instruction_ends_flow(insn))
		return false;

	switch (insn->opcode.bytes[0]) {
	case 0x9a:		/* call far */
	case 0xcd:		/* int */
	case 0xce:		/* into */
	case 0xf1:		/* int1 */
		return false;
	case 0xff:		/* call, call far: their return address would be the copy's */
		return extension(insn) != 2 && extension(insn) != 3;
	case TWO_BYTE:
		switch (insn->opcode.bytes[1]) {
		case 0x05:	/* syscall */
		case 0x07:	/* sysret */
		case 0x34:	/* sysenter */
		case 0x35:	/* sysexit */
			return false;
		}
	}
	return true;
}
