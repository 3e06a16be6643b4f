/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __READSIZE_H
#define __READSIZE_H

#define SLOTS 27

struct hist {
	__u32 slots[SLOTS];
};

#endif
