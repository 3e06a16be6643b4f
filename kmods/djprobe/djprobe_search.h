/* SPDX-License-Identifier: GPL-2.0-only */
/* Does any instruction of a function lead into the bytes under the jump? */
#ifndef LAB_DJPROBE_SEARCH_H
#define LAB_DJPROBE_SEARCH_H

#include "function.h"
#include "refusal.h"

/* -EOPNOTSUPP where this kernel lacks what the function below needs. May sleep. */
int djprobe_search_init(void);

/*
 * Looks through the function from its entry on, and through its cold part, for
 * a way into the middle of its first replaced bytes. Refuses it where there is
 * one or may be one. May sleep.
 */
struct refusal djprobe_search(const struct function *function, size_t replaced);

#endif
