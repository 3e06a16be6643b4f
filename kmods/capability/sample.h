/* SPDX-License-Identifier: GPL-2.0-only */
/* How many instructions of functions all over the kernel take a kprobe? */
#ifndef LAB_SAMPLE_H
#define LAB_SAMPLE_H

#include "placement.h"

#define SAMPLE_FUNCTIONS	50
/* Of each function. One takes some tens of milliseconds on a preemptible kernel under emulation. */
#define SAMPLE_PLACES		8

struct sample {
	unsigned int functions;
	unsigned int places;	/* instructions */
	unsigned int taken;	/* those that took a kprobe */
};

/*
 * Registers kprobes function by function and unregisters them again; room is the
 * memory for them. The same kernel gives the same functions. -EIO where a
 * function's bytes do not come back, -EOPNOTSUPP where kallsyms has no _stext or
 * _etext. May sleep for some seconds.
 */
int sample_take(struct sample *sample, struct placement *room);

#endif
