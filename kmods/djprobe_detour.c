// SPDX-License-Identifier: GPL-2.0-only
/* What does a CPU run between a djprobe's jump and the jump back? */
#include <linux/bitmap.h>
#include <linux/build_bug.h>
#include <linux/preempt.h>
#include <linux/string.h>

#include "djprobe_detour.h"
#include "djprobe_stub.h"
#include "instruction.h"
#include "ktext.h"

#define PUSH_IMM32	0x68

/* Drops the word that a detour pushed; unlike an add, it leaves the flags alone. */
#ifdef CONFIG_X86_64
static const u8 drop_word[] = { 0x48, 0x8d, 0x64, 0x24, 0x08 };	/* lea 8(%rsp), %rsp */
#else
static const u8 drop_word[] = { 0x8d, 0x64, 0x24, 0x04 };	/* lea 4(%esp), %esp */
#endif

extern u8 djprobe_detours[DETOUR_COUNT][DETOUR_SIZE];
extern const u8 djprobe_stub[];

static DECLARE_BITMAP(detours_in_use, DETOUR_COUNT);

/*
 * Called by djprobe_stub. The probed function may be preemptible; a handler is
 * not, which is what lets synchronize_rcu() wait for handlers. A hit keeps all
 * its state on its own stack, so an interrupt's or NMI's hit on top of it is
 * harmless, and there is no guard against re-entering that could lose a hit.
 */
void djprobe_hit(struct djprobe *djp, struct pt_regs *regs);

void djprobe_hit(struct djprobe *djp, struct pt_regs *regs)
{
	static_assert(offsetof(struct pt_regs, sp) == REGS_SP);
	static_assert(offsetof(struct pt_regs, ss) == REGS_SS);
	static_assert(sizeof(struct pt_regs) == REGS_SIZE);

	preempt_disable_notrace();
	READ_ONCE(djp->handler)(djp, regs);
	preempt_enable_notrace();
}
NOKPROBE_SYMBOL(djprobe_hit);

/* The detour under construction: bytes in a buffer, and where they will run. */
struct detour {
	u8 *text;
	size_t size;
	u8 buffer[DETOUR_SIZE];
};

static void add(struct detour *detour, const void *bytes, size_t size)
{
	memcpy(detour->buffer + detour->size, bytes, size);
	detour->size += size;
}

static void add_imm32(struct detour *detour, u8 opcode, s32 immediate)
{
	add(detour, &opcode, sizeof(opcode));
	add(detour, &immediate, sizeof(immediate));
}

/* A jump or call; all text is within two gigabytes of a module's. */
static void add_branch(struct detour *detour, u8 opcode, const void *target)
{
	const u8 *next = detour->text + detour->size + JMP32_INSN_SIZE;

	add_imm32(detour, opcode, (const u8 *)target - next);
}

static const char *add_copy(struct detour *detour, struct insn *insn, unsigned long addr)
{
	u8 *copy = detour->buffer + detour->size;
	long moved = (long)(detour->text + detour->size) - (long)addr;

	add(detour, (const void *)addr, insn->length);
	if (instruction_is_rip_relative(insn)) {
		long distance = insn->displacement.value - moved;
		s32 displacement = distance;

		if (displacement != distance)
			return "an operand is out of the detour's reach";
		memcpy(copy + insn_offset_displacement(insn), &displacement, sizeof(displacement));
	}
	return NULL;
}

static const char *add_copies(struct detour *detour, const struct djprobe *djp)
{
	unsigned long addr = (unsigned long)djp->bypass.addr, end = addr + djp->replaced;
	const char *reason;
	struct insn insn;

	for (; addr < end; addr += insn.length) {
		if (!instruction_decode(&insn, addr, end))
			return "an instruction cannot be decoded";
		reason = add_copy(detour, &insn, addr);
		if (reason)
			return reason;
	}
	return NULL;
}

const char *djprobe_detour_build(struct djprobe *djp)
{
	unsigned long slot = find_first_zero_bit(detours_in_use, DETOUR_COUNT);
	struct detour detour = {};
	const char *reason;

	if (slot == DETOUR_COUNT)
		return "no detour buffer is free";
	if ((long)(s32)(long)djp != (long)djp)
		return "the struct djprobe is not an object of a module";
	detour.text = djprobe_detours[slot];

	add_imm32(&detour, PUSH_IMM32, (long)djp);
	add_branch(&detour, CALL_INSN_OPCODE, djprobe_stub);
	add(&detour, drop_word, sizeof(drop_word));
	djp->copy = detour.text + detour.size;
	reason = add_copies(&detour, djp);
	if (reason)
		return reason;
	add_branch(&detour, JMP32_INSN_OPCODE, djp->bypass.addr + djp->replaced);

	ktext_copy(detour.text, detour.buffer, detour.size);
	__set_bit(slot, detours_in_use);
	djp->detour = detour.text;
	djp->detour_size = detour.size;
	return NULL;
}

void djprobe_detour_free(struct djprobe *djp)
{
	__clear_bit((djp->detour - djprobe_detours[0]) / DETOUR_SIZE, detours_in_use);
}
