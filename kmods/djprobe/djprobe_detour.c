// SPDX-License-Identifier: GPL-2.0-only
/* What does a CPU run between a djprobe's jump and the jump back? */
#include <linux/build_bug.h>
#include <linux/preempt.h>
#include <linux/string.h>

#include "djprobe_detour.h"
#include "djprobe_stub.h"
#include "instruction.h"
#include "ktext.h"

/* push of a word at an absolute address: opcode, modrm and, on x86_64, sib */
#ifdef CONFIG_X86_64
static const u8 push_memory[] = { 0xff, 0x34, 0x25 };
#else
static const u8 push_memory[] = { 0xff, 0x35 };
#endif

/* Drops the word that a detour pushed; unlike an add, it leaves the flags alone. */
#ifdef CONFIG_X86_64
static const u8 drop_word[] = { 0x48, 0x8d, 0x64, 0x24, 0x08 };	/* lea 8(%rsp), %rsp */
#else
static const u8 drop_word[] = { 0x8d, 0x64, 0x24, 0x04 };	/* lea 4(%esp), %esp */
#endif

extern u8 djprobe_detours[DETOUR_COUNT][DETOUR_SIZE];
extern const u8 djprobe_stub[];

/* Static, because a detour names its jump by a 32-bit address. */
static struct djprobe_jump jumps[DETOUR_COUNT];

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

/* A jump or call; all text is within two gigabytes of a module's. */
static void add_branch(struct detour *detour, u8 opcode, const void *target)
{
	const u8 *next = detour->text + detour->size + JMP32_INSN_SIZE;
	s32 distance = (const u8 *)target - next;

	add(detour, &opcode, sizeof(opcode));
	add(detour, &distance, sizeof(distance));
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

static const char *add_copies(struct detour *detour, const struct djprobe_jump *jump)
{
	unsigned long addr = (unsigned long)jump->bypass.addr, end = addr + jump->replaced;
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

struct djprobe_jump *djprobe_detour_jump(void)
{
	int i;

	for (i = 0; i < DETOUR_COUNT; i++)
		if (!jumps[i].detour)
			return &jumps[i];
	return NULL;
}

const char *djprobe_detour_build(struct djprobe_jump *jump)
{
	struct detour detour = { .text = djprobe_detours[jump - jumps] };
	s32 called = (long)&jump->called;
	const char *reason;

	add(&detour, push_memory, sizeof(push_memory));
	add(&detour, &called, sizeof(called));
	add_branch(&detour, CALL_INSN_OPCODE, djprobe_stub);
	add(&detour, drop_word, sizeof(drop_word));
	jump->copy = detour.text + detour.size;
	reason = add_copies(&detour, jump);
	if (reason)
		return reason;
	add_branch(&detour, JMP32_INSN_OPCODE, jump->bypass.addr + jump->replaced);

	ktext_copy(detour.text, detour.buffer, detour.size);
	jump->detour = detour.text;
	jump->detour_size = detour.size;
	return NULL;
}

void djprobe_detour_free(struct djprobe_jump *jump)
{
	jump->detour = NULL;
}
