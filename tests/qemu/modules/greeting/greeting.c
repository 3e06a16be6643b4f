// SPDX-License-Identifier: GPL-2.0-only
// Greets on the console, with the words of another module.
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "greeting_words.h"

static char *whom = "nobody";
module_param(whom, charp, 0444);

static int times = 1;
module_param(times, int, 0644);

static int __init greeting_init(void)
{
	pr_alert("%s %s, %d times\n", greeting_words(), whom, times);
	return times < 0 ? -EINVAL : 0;
}

static void __exit greeting_exit(void)
{
	pr_alert("goodbye %s\n", whom);
}

module_init(greeting_init);
module_exit(greeting_exit);
MODULE_LICENSE("GPL");
