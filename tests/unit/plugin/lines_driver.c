// SPDX-License-Identifier: GPL-2.0-only
// Feeds the model of several CPUs' caches with what its input says. Output: for each CPU its moved lines and its accesses to
// contended lines, and at last how many lines are contended.
//
// Input, one line each: WHAT CPU PHYSICAL SIZE IN_WINDOW, numbers in hex. WHAT is load, store, or forget.
#include <stdio.h>
#include <string.h>

#include "lines.h"

int main(void)
{
	unsigned long physical, moved[CPUS] = {0};
	unsigned int cpu, size, in_window;
	bool is_room = true;
	char what[8];

	while (scanf("%7s %x %lx %x %x", what, &cpu, &physical, &size, &in_window) == 5) {
		if (!strcmp(what, "forget"))
			forget_lines();
		else
			moved[cpu] += access_lines(cpu, physical, size, !strcmp(what, "store"), in_window, &is_room);
	}
	for (cpu = 0; cpu < CPUS; cpu++)
		printf("%lu %lu\n", moved[cpu], (unsigned long)contended_accesses(cpu));
	printf("%u\n", contended_lines());
	return is_room ? 0 : 1;
}
