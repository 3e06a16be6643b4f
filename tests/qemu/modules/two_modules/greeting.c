// SPDX-License-Identifier: GPL-2.0-only
/* Needs the other module of its folder, and shows its parameters. */
#include <linux/module.h>

int greeting_words(void);

static int count = 1;
module_param(count, int, 0444);

static char *whom = "nobody";
module_param(whom, charp, 0444);

static int __init greeting_init(void)
{
	pr_info("greeting: %d times %d words for %s\n", count, greeting_words(), whom);
	return 0;
}

static void __exit greeting_exit(void)
{
}

module_init(greeting_init);
module_exit(greeting_exit);
MODULE_LICENSE("GPL");
