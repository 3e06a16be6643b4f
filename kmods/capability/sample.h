/* SPDX-License-Identifier: GPL-2.0-only */
/* At how many instructions of functions from all over the kernel do kprobes go? */
#ifndef LAB_SAMPLE_H
#define LAB_SAMPLE_H

#include "placement.h"

#define SAMPLE_FUNCTIONS	50
/* Of each function. One takes a preemptible kernel some tens of milliseconds in an emulator. */
#define SAMPLE_PLACES		8

struct sample {
	unsigned int functions;
	unsigned int places;	/* instructions */
	unsigned int taken;	/* those that took a kprobe */
};

/*
 * Puts kprobes in function by function and takes them out again; room is where
 * they are meanwhile. The functions are the same ones on the same kernel. -EIO
 * where a function's bytes do not come back, -EOPNOTSUPP where the kernel's text
 * is not told. May sleep for some seconds.
 */
int sample_take(struct sample *sample, struct placement *room);

#endif
