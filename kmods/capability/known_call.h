/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does a probe's struct pt_regs hold when every register is known?
 *
 * known_call() calls known_call_target() with a different value in each general
 * register, the carry flag set, interrupts off, and the stack below filled with
 * one word: a member that a probe leaves undefined in a struct pt_regs has that
 * word.
 */
#ifndef LAB_KNOWN_CALL_H
#define LAB_KNOWN_CALL_H

#include <linux/ptrace.h>
#include <linux/types.h>

#include "known_call_code.h"

/* Whether general registers, flags and stack pointer are those of the call. For a handler. */
bool known_call_is_right(const struct pt_regs *regs);

/*
 * Whether the segments are what was on the stack, so that no code has saved them;
 * on x86_64 only ss is looked at. cs is left out: in the kernel it is a constant.
 * For a handler.
 */
bool known_call_lacks_segments(const struct pt_regs *regs);

#endif
