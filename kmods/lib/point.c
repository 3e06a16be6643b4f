// SPDX-License-Identifier: GPL-2.0-only
/* Is a probe in the function that its parameters name? */
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "point.h"

bool point_is_in_symbol(const void *address, unsigned int offset)
{
	char place[KSYM_SYMBOL_LEN];
	const char *plus;
	unsigned int found;

	/* "name+0x5/0x40", and " [module]" behind it. Names at one address differ, their offset does not. */
	sprint_symbol(place, (unsigned long)address);
	plus = strchr(place, '+');
	return plus && sscanf(plus, "+0x%x/", &found) == 1 && found == offset;
}
