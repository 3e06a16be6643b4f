// SPDX-License-Identifier: GPL-2.0-only
// Exports what the module beside it needs.
#include <linux/module.h>

#include "greeting_words.h"

const char *greeting_words(void)
{
	return "hello";
}
EXPORT_SYMBOL_GPL(greeting_words);

MODULE_LICENSE("GPL");
