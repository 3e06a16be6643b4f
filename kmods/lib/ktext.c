// SPDX-License-Identifier: GPL-2.0-only
/* How does a module write kernel text that other CPUs may be running? */
#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/memory.h>
#include <linux/mutex.h>
#include <linux/string.h>

#include "ksym.h"
#include "ktext.h"

static struct {
	typeof(text_poke_bp) *poke_bp;
	typeof(text_poke_copy) *poke_copy;
	struct mutex *mutex;
	/* These two take and release the mutex, besides what ftrace needs. */
	void (*ftrace_lock)(void);
	void (*ftrace_unlock)(void);
} ktext;

int ktext_init(void)
{
	ktext.poke_bp = KSYM(text_poke_bp);
	if (!ktext.poke_bp)
		ktext.poke_bp = (typeof(ktext.poke_bp))ksym_lookup("smp_text_poke_single");
	ktext.poke_copy = KSYM(text_poke_copy);
	/* An object, so without CONFIG_KALLSYMS_ALL its address is not to be had. */
	ktext.mutex = KSYM(text_mutex);
	ktext.ftrace_lock = (void (*)(void))ksym_lookup("ftrace_arch_code_modify_prepare");
	ktext.ftrace_unlock = (void (*)(void))ksym_lookup("ftrace_arch_code_modify_post_process");

	if (!ktext.poke_bp || !ktext.poke_copy)
		return -EOPNOTSUPP;
	if (!ktext.mutex && (!ktext.ftrace_lock || !ktext.ftrace_unlock))
		return -EOPNOTSUPP;
	return 0;
}

void ktext_lock(void)
{
	if (ktext.mutex)
		mutex_lock(ktext.mutex);
	else
		ktext.ftrace_lock();
}

void ktext_unlock(void)
{
	if (ktext.mutex)
		mutex_unlock(ktext.mutex);
	else
		ktext.ftrace_unlock();
}

void ktext_replace(void *addr, const u8 text[JMP32_INSN_SIZE], const u8 jump[JMP32_INSN_SIZE])
{
	ktext.poke_bp(addr, text, JMP32_INSN_SIZE, jump);
}

void ktext_exchange(void *addr, const void *text, size_t size, const void *target)
{
	/* The jump that the breakpoint is taken for begins where the next instruction does. */
	s32 distance = (const u8 *)target - ((const u8 *)addr + size);
	u8 jump[JMP32_INSN_SIZE] = { JMP32_INSN_OPCODE };

	memcpy(jump + 1, &distance, sizeof(distance));
	ktext.poke_bp(addr, text, size, jump);
}

void ktext_copy(void *addr, const void *text, size_t size)
{
	ktext.poke_copy(addr, text, size);
}
