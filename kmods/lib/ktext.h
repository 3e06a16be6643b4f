/* SPDX-License-Identifier: GPL-2.0-only */
/* How does a module write kernel text that other CPUs may be running? */
#ifndef LAB_KTEXT_H
#define LAB_KTEXT_H

#include <linux/types.h>
#include <asm/text-patching.h>

/* As older kernels declare it; newer ones have it as smp_text_poke_single(). */
void text_poke_bp(void *addr, const void *opcode, size_t len, const void *emulate);

/* -EOPNOTSUPP where this kernel lacks what the functions below need. May sleep. */
int ktext_init(void);

/* The kernel's own lock on patching text; everything that writes text takes it. */
void ktext_lock(void);
void ktext_unlock(void);

/*
 * Replaces five bytes that begin with a whole instruction, safely for CPUs that
 * come to that instruction meanwhile: they jump where jump says. For none of
 * them may be, or return, inside the five bytes. Needs the lock.
 */
void ktext_replace(void *addr, const u8 text[JMP32_INSN_SIZE], const u8 jump[JMP32_INSN_SIZE]);

/*
 * Replaces an instruction of two to five bytes by another of that size, safely for
 * CPUs that come to it meanwhile: they go on at target, as if they had run it and
 * what follows up to there. Needs the lock.
 */
void ktext_exchange(void *addr, const void *text, size_t size, const void *target);

/* Writes text of a module that no CPU is running. Takes the lock. */
void ktext_copy(void *addr, const void *text, size_t size);

#endif
