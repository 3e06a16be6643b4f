/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a copied instruction and the jump back are written: 15 bytes and 5. */
#include <linux/linkage.h>

	.text
	.balign 32
	.globl booster_slot
booster_slot:
	.fill 32, 1, 0xcc
