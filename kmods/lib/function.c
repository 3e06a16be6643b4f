// SPDX-License-Identifier: GPL-2.0-only
/* Which function does an address lie in, and where is that function's entry? */
#include <linux/ftrace.h>
#include <linux/kallsyms.h>

#include "function.h"
#include "ksym.h"

/* Behind the call to ftrace, be it a nop or live; 0 where the function has none. */
static unsigned long behind_ftrace_nop(unsigned long start)
{
#ifdef CONFIG_DYNAMIC_FTRACE
	static typeof(ftrace_location) *location;
	unsigned long nop;

	if (!location)
		location = KSYM(ftrace_location);
	nop = location ? location(start) : 0;
	return nop ? nop + MCOUNT_INSN_SIZE : 0;
#else
	return 0;
#endif
}

bool find_function(unsigned long address, struct function *function)
{
	static typeof(kallsyms_lookup_size_offset) *lookup;
	unsigned long size, offset, behind;

	/* Kept, as the lookup of a name is slow. */
	if (!lookup)
		lookup = KSYM(kallsyms_lookup_size_offset);
	if (!lookup || !lookup(address, &size, &offset))
		return false;

	function->start = address - offset;
	function->end = function->start + size;
	function->entry = function->start;
	if (endbr_at(function->entry))
		function->entry += sizeof(u32);
	behind = behind_ftrace_nop(function->start);
	if (behind)
		function->entry = behind;
	return true;
}
