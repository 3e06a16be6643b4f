/* SPDX-License-Identifier: GPL-2.0-only */
/* Where does the booster write the copied instruction and the jump back? */
#include <linux/linkage.h>

	.text
	.balign 32
	.globl booster_slot
booster_slot:
	.fill 32, 1, 0xcc
