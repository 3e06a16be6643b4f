/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a CPU run between a djprobe's jump and the jump back? */
#ifndef LAB_DJPROBE_DETOUR_H
#define LAB_DJPROBE_DETOUR_H

#include "djprobe.h"

/*
 * Writes a detour for the djp->replaced bytes at the probe point into a buffer
 * of this module's own text and fills in detour, detour_size and copy. Returns
 * NULL, or the reason why there is none. May sleep.
 */
const char *djprobe_detour_build(struct djprobe *djp);

/* Gives the buffer back; nobody may be in it, nor on the way to it. */
void djprobe_detour_free(struct djprobe *djp);

#endif
