// SPDX-License-Identifier: GPL-2.0-only
/* What the other module of its folder needs. WORDS is a variable of make's. */
#include <linux/module.h>

int greeting_words(void);

int greeting_words(void)
{
	return WORDS;
}
EXPORT_SYMBOL_GPL(greeting_words);

MODULE_LICENSE("GPL");
