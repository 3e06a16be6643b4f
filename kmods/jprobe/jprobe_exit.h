/* SPDX-License-Identifier: GPL-2.0-only */
/* Through which int3 does a jprobe's handler leave? */
#ifndef LAB_JPROBE_EXIT_H
#define LAB_JPROBE_EXIT_H

/* The exit in use, and what ip is once its int3 has trapped. */
extern void (*jprobe_exit)(void);
extern unsigned long jprobe_exit_trapped;

/*
 * Chooses the exit for handlers of a probe at this address. No handler may run
 * meanwhile.
 */
void choose_jprobe_exit(const void *probed);

#endif
