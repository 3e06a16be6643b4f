/* SPDX-License-Identifier: GPL-2.0-only */
/* What do the C and assembler sources of the known call agree on? */
#ifndef LAB_KNOWN_CALL_CODE_H
#define LAB_KNOWN_CALL_CODE_H

#define KNOWN_STACK_WORD	0x5a5a5a5a
#define KNOWN_STACK_WORDS	64
#define KNOWN_VALUE(number)	(0x1b600000 + (number))

#ifndef __ASSEMBLY__
/* Calls known_call_target() with the values above in the registers and on the stack. */
void known_call(void);

/* The probe point is its first instruction. It does nothing. */
void known_call_target(void);

/* The return address of that call. */
extern const char known_call_returned[];
#endif

#endif
