/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a directly called trampoline do, and where is one for each handler? */
#ifndef LAB_DIRECT_TRAMPOLINE_H
#define LAB_DIRECT_TRAMPOLINE_H

/* Each calls the handler of its name. */
void trampoline_noop(void);
void trampoline_count(void);
void trampoline_record(void);
void trampoline_stack(void);

/* The module's main file defines these. "caller" is where the function returns to. Preemption may be on. */
void direct_noop(unsigned long caller);
void direct_count(unsigned long caller);
void direct_record(unsigned long caller);
void direct_stack(unsigned long caller);

#endif
