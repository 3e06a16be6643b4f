/* SPDX-License-Identifier: GPL-2.0-only */
/* How does a module say why it refuses a probe point? */
#ifndef LAB_REFUSAL_H
#define LAB_REFUSAL_H

/* Why a probe point is refused. */
struct refusal {
	int err;		/* a negative errno, 0 where it is not refused */
	const char *reason;
};

#define REFUSAL(error, text)	((struct refusal){ .err = -(error), .reason = (text) })
#define NO_REFUSAL		((struct refusal){ })

/*
 * Writes "<module>: <symbol>+0x<offset>: <reason>" into the kernel log and
 * returns err, so that a check can end with it.
 */
int refuse_point(const char *symbol, unsigned int offset, int err, const char *reason);

/* The same for a place that was named by its address, written as %pS does. */
int refuse_address(const void *address, int err, const char *reason);

/* What an error of register_kprobe() means, in words. */
const char *kprobe_refusal(int err);

#endif
