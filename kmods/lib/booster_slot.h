/* SPDX-License-Identifier: GPL-2.0-only */
/* Where does the booster write the copied instruction and the jump back? */
#ifndef LAB_BOOSTER_SLOT_H
#define LAB_BOOSTER_SLOT_H

#include <linux/types.h>

/* In the module's text. 32 bytes: an instruction of at most 15, and a jump of 5. */
extern u8 booster_slot[];

#endif
