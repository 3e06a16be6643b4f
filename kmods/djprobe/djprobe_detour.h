/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a CPU run between a djprobe's jump and the jump back? */
#ifndef LAB_DJPROBE_DETOUR_H
#define LAB_DJPROBE_DETOUR_H

#include "djprobe_jump.h"

/* A jump whose detour buffer is free, NULL if there is none. */
struct djprobe_jump *djprobe_detour_jump(void);

/*
 * Writes a detour for the original bytes of the jump into its buffer in this
 * module's own text and fills in detour, detour_size and copy. May sleep.
 */
struct refusal djprobe_detour_build(struct djprobe_jump *jump);

/* Frees the buffer; no CPU may be in it, nor on the way to it. */
void djprobe_detour_free(struct djprobe_jump *jump);

#endif
