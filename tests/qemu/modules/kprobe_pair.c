// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which of two kprobes at one address does a hit on each CPU find?
 *
 * A number written to "put" registers the kprobe of that number at "symbol", one
 * written to "take" unregisters it, and one written to "call" calls the function
 * on that CPU. "hits" has a line for each kprobe, with its hits on each CPU.
 * "alone" shows whether kprobe 0 is in the kernel's hash itself: else there is an
 * aggregator in its place, which calls all kprobes of the address.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/smp.h>
#include <linux/sysfs.h>

static char symbol[64];
module_param_string(symbol, symbol, sizeof(symbol), 0444);

/* A return cannot be moved, and there is nothing else that would make up five bytes. */
asm(".pushsection .text\n"
	".balign 16, 0xcc\n"
	".type pair_short, @function\n"
	"pair_short:\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	".size pair_short, . - pair_short\n"
	".balign 16, 0xcc\n"
	/* Room for a jump. */
	".type pair_long, @function\n"
	"pair_long:\n"
	"	movl $0x2014, %eax\n"
	"	ret\n"
	".size pair_long, . - pair_long\n"
	".balign 16, 0xcc\n"
	".popsection\n");

/* Not freed before the module goes: what is hit after it has been taken away is only counted. */
static struct single {
	struct kprobe kp;
	bool registered;
	unsigned long hits[NR_CPUS];
} pair[2];

static void (*probed)(void);

static int hit(struct kprobe *kp, struct pt_regs *regs)
{
	container_of(kp, struct single, kp)->hits[raw_smp_processor_id()]++;
	return 0;
}
NOKPROBE_SYMBOL(hit);

/* Keeps the kernel from making a jump of it where it could: a jump looks nothing up. */
static void post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(post);

static struct single *numbered(const char *text)
{
	unsigned int number;

	return kstrtouint(text, 0, &number) || number >= ARRAY_SIZE(pair) ? NULL : &pair[number];
}

static int put(const char *text, const struct kernel_param *param)
{
	struct single *single = numbered(text);
	int err;

	if (!single || single->registered)
		return -EBUSY;
	single->kp = (struct kprobe){
		.symbol_name = symbol,
		.pre_handler = hit,
		.post_handler = post,
	};
	err = register_kprobe(&single->kp);
	single->registered = !err;
	if (!err)
		probed = (void (*)(void))single->kp.addr;
	return err;
}

static void take_out(struct single *single)
{
	if (single->registered)
		unregister_kprobe(&single->kp);
	single->registered = false;
}

static int take(const char *text, const struct kernel_param *param)
{
	struct single *single = numbered(text);

	if (!single || !single->registered)
		return -ENOENT;
	take_out(single);
	return 0;
}

static void call_probed(void *unused)
{
	probed();
}

static int call(const char *text, const struct kernel_param *param)
{
	unsigned int cpu;

	if (kstrtouint(text, 0, &cpu) || !probed)
		return -EINVAL;
	return smp_call_function_single(cpu, call_probed, NULL, true);
}

static int get_hits(char *page, const struct kernel_param *param)
{
	int i, cpu, size = 0;

	for (i = 0; i < ARRAY_SIZE(pair); i++) {
		for_each_online_cpu(cpu)
			size += sysfs_emit_at(page, size, "%lu ", pair[i].hits[cpu]);
		size += sysfs_emit_at(page, size, "\n");
	}
	return size;
}

static int get_alone(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, "%d\n", pair[0].registered && list_empty(&pair[0].kp.list));
}

static const struct kernel_param_ops put_ops = { .set = put };
static const struct kernel_param_ops take_ops = { .set = take };
static const struct kernel_param_ops call_ops = { .set = call };
static const struct kernel_param_ops hits_ops = { .get = get_hits };
static const struct kernel_param_ops alone_ops = { .get = get_alone };
module_param_cb(put, &put_ops, NULL, 0200);
module_param_cb(take, &take_ops, NULL, 0200);
module_param_cb(call, &call_ops, NULL, 0200);
module_param_cb(hits, &hits_ops, NULL, 0444);
module_param_cb(alone, &alone_ops, NULL, 0444);

static int __init kprobe_pair_init(void)
{
	return 0;
}

static void __exit kprobe_pair_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(pair); i++)
		take_out(&pair[i]);
}

module_init(kprobe_pair_init);
module_exit(kprobe_pair_exit);
MODULE_DESCRIPTION("Two kprobes at one address");
MODULE_LICENSE("GPL");
