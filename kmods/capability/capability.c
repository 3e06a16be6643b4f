// SPDX-License-Identifier: GPL-2.0-only
/* How does a handler count a hit only if it saw what it must see? */
#include <linux/errno.h>
#include <linux/kprobes.h>

#include "capability.h"
#include "ksym.h"

static unsigned long text_start, text_end;
static bool counting;

int capability_init(void)
{
	text_start = ksym_lookup("_stext");
	text_end = ksym_lookup("_etext");
	return text_start && text_end ? 0 : -EOPNOTSUPP;
}

int capability_select_handler(enum handler handler)
{
	if (handler == HANDLER_RECORD)
		return -EOPNOTSUPP;
	WRITE_ONCE(counting, handler == HANDLER_COUNT);
	return 0;
}

void capability_seen(bool right)
{
	if (right && READ_ONCE(counting))
		count_hit();
}
NOKPROBE_SYMBOL(capability_seen);

bool capability_is_return_address(unsigned long address)
{
	return address >= text_start && address < text_end;
}
NOKPROBE_SYMBOL(capability_is_return_address);
