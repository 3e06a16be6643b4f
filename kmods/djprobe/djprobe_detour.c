// SPDX-License-Identifier: GPL-2.0-only
/* What does a CPU run between a djprobe's jump and the jump back? */
#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/preempt.h>
#include <linux/string.h>

#include "djprobe_detour.h"
#include "djprobe_stub.h"
#include "instruction.h"
#include "ksym.h"
#include "ktext.h"

/* Static, because a detour names its jump by a 32-bit address. */
static struct djprobe_jump djprobe_jumps[DETOUR_COUNT];

/*
 * The probed function may be preemptible; a handler is not, which is what lets
 * synchronize_rcu() wait for handlers. A hit keeps all its state on its own stack,
 * so an interrupt's or NMI's hit on top of it is harmless, and there is no guard
 * against re-entering that could lose a hit.
 */
void djprobe_hit(struct djprobe *djp, struct pt_regs *regs)
{
	djprobe_handler *handler;

#ifdef CONFIG_X86_64
	static_assert(offsetof(struct pt_regs, di) == REGS_DI);
#else
	static_assert(offsetof(struct pt_regs, ax) == REGS_AX);
	static_assert(offsetof(struct pt_regs, ss) == REGS_SS);
#endif
	static_assert(sizeof(struct pt_regs) == REGS_SIZE);

	preempt_disable_notrace();
	handler = READ_ONCE(djp->handler);
	handler(djp, regs);
	preempt_enable_notrace();
}
NOKPROBE_SYMBOL(djprobe_hit);

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 18, 0)
void *text_poke_copy(void *addr, const void *text, size_t size)
{
	ktext_lock();
	KSYM(text_poke)(addr, text, size);
	ktext_unlock();
	return addr;
}
#endif

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

static void set_operand(struct detour *detour, const u8 *operand, s32 value)
{
	memcpy(detour->buffer + (operand - djprobe_head), &value, sizeof(value));
}

static void add_head(struct detour *detour, const struct djprobe_jump *jump)
{
	add(detour, djprobe_head, djprobe_head_end - djprobe_head);
	set_operand(detour, djprobe_head_ip, (long)jump->bypass.addr + INT3_INSN_SIZE);
	set_operand(detour, djprobe_head_called, (long)&jump->called);
	/* The call is the last instruction. All text is within two gigabytes of a module's. */
	set_operand(detour, djprobe_head_stub, djprobe_stub - (detour->text + detour->size));
}

static void add_jump_back(struct detour *detour, const u8 *target)
{
	u8 jump[JMP32_INSN_SIZE];

	__text_gen_insn(jump, JMP32_INSN_OPCODE, detour->text + detour->size, target, JMP32_INSN_SIZE);
	add(detour, jump, sizeof(jump));
}

/* An instruction of the kept bytes that is to run as if it were at addr. */
static struct refusal add_copy(struct detour *detour, struct insn *insn, unsigned long addr)
{
	u8 *copy = detour->buffer + detour->size;
	long moved = (long)(detour->text + detour->size) - (long)addr;

	add(detour, insn->kaddr, insn->length);
	if (instruction_is_rip_relative(insn)) {
		long distance = insn->displacement.value - moved;
		s32 displacement = distance;

		if (displacement != distance)
			return REFUSAL(ERANGE, "an operand is out of the detour's reach");
		memcpy(copy + insn_offset_displacement(insn), &displacement, sizeof(displacement));
	}
	return NO_REFUSAL;
}

static struct refusal add_copies(struct detour *detour, const struct djprobe_jump *jump)
{
	unsigned long kept = (unsigned long)jump->original, end = kept + jump->replaced;
	unsigned long addr = (unsigned long)jump->bypass.addr;
	struct refusal refusal;
	struct insn insn;

	for (; kept < end; kept += insn.length, addr += insn.length) {
		if (!instruction_decode(&insn, kept, end))
			return REFUSAL(EINVAL, "an instruction cannot be decoded");
		refusal = add_copy(detour, &insn, addr);
		if (refusal.err)
			return refusal;
	}
	return NO_REFUSAL;
}

struct djprobe_jump *djprobe_detour_jump(void)
{
	int i;

	for (i = 0; i < DETOUR_COUNT; i++)
		if (!djprobe_jumps[i].detour)
			return &djprobe_jumps[i];
	return NULL;
}

struct refusal djprobe_detour_build(struct djprobe_jump *jump)
{
	struct detour detour = { .text = djprobe_detours[jump - djprobe_jumps] };
	struct refusal refusal;

	add_head(&detour, jump);
	jump->copy = detour.text + detour.size;
	refusal = add_copies(&detour, jump);
	if (refusal.err)
		return refusal;
	add_jump_back(&detour, jump->bypass.addr + jump->replaced);

	ktext_copy(detour.text, detour.buffer, detour.size);
	jump->detour = detour.text;
	jump->detour_size = detour.size;
	return NO_REFUSAL;
}

void djprobe_detour_free(struct djprobe_jump *jump)
{
	jump->detour = NULL;
}
