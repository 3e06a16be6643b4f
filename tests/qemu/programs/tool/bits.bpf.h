/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __BITS_BPF_H
#define __BITS_BPF_H

static __always_inline u64 log2_of(u64 value)
{
	u64 bits = 0;

	for (int step = 32; step; step >>= 1) {
		if (value >> step) {
			bits += step;
			value >>= step;
		}
	}
	return bits;
}

#endif
