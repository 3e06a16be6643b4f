// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>

static int evens, odds;

static noinline int is_even(int number)
{
	if (number & 1) {
		pr_info("odd\n");
		odds++;
		return 0;
	}
	evens++;
	return 1;
}

static int set_number(const char *text, const struct kernel_param *parameter)
{
	int number, error = kstrtoint(text, 0, &number);

	if (error)
		return error;
	is_even(number);
	return 0;
}

static const struct kernel_param_ops ops = { .set = set_number };
module_param_cb(number, &ops, NULL, 0200);

static int __init parity_init(void)
{
	pr_info("begins\n");
	return 0;
}

static void __exit parity_exit(void)
{
	pr_info("%d even, %d odd\n", evens, odds);
}

module_init(parity_init);
module_exit(parity_exit);
MODULE_LICENSE("GPL");
