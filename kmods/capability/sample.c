// SPDX-License-Identifier: GPL-2.0-only
/* How many instructions of functions all over the kernel take a kprobe? */
#include <linux/errno.h>
#include <linux/jhash.h>
#include <linux/math64.h>
#include <linux/sched.h>

#include "ksym.h"
#include "sample.h"

/* Counts draws that give no function, or one that was drawn before, as well. */
enum { DRAWS_MAX = 20 * SAMPLE_FUNCTIONS };

static const u32 seed = 2005;

static int nothing(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}
NOKPROBE_SYMBOL(nothing);

static u32 content(const struct function *function)
{
	return jhash((const void *)function->start, function->end - function->start, 0);
}

static bool was_drawn(const unsigned long *drawn, unsigned int count, unsigned long start)
{
	while (count--)
		if (drawn[count] == start)
			return true;
	return false;
}

static int take(struct sample *sample, struct placement *room, struct function *function)
{
	u32 before = content(function);

	/* From the first byte on: endbr and the function tracer's nop are instructions too. */
	function->entry = function->start;
	placement_put_in(room, function, SAMPLE_PLACES, nothing);
	sample->functions++;
	sample->places += room->places;
	sample->taken += room->taken;
	placement_take_out(room);
	cond_resched();
	return content(function) == before ? 0 : -EIO;
}

int sample_take(struct sample *sample, struct placement *room)
{
	unsigned long start = ksym_lookup("_stext"), end = ksym_lookup("_etext");
	unsigned long drawn[SAMPLE_FUNCTIONS];
	u32 number = seed;
	int draw, err = 0;

	*sample = (struct sample){};
	if (!start || end <= start)
		return -EOPNOTSUPP;
	for (draw = 0; draw < DRAWS_MAX && sample->functions < SAMPLE_FUNCTIONS && !err; draw++) {
		struct function function;

		number = number * 1664525 + 1013904223;
		if (!find_function(start + (unsigned long)(mul_u32_u32(number, end - start) >> 32), &function))
			continue;
		if (function.end > end || was_drawn(drawn, sample->functions, function.start))
			continue;
		drawn[sample->functions] = function.start;
		err = take(sample, room, &function);
	}
	return err;
}
