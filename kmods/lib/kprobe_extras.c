// SPDX-License-Identifier: GPL-2.0-only
/* What does a hit pass besides the kprobe's own handler, and how does a module do without it? */
#include <linux/kstrtox.h>
#include <linux/list.h>
#include <linux/moduleparam.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "kprobe_extras.h"
#include "ksym.h"
#include "report.h"

/* What a hit finds at the kprobe's place: the kprobe itself, or its aggregator. NULL while there is none. */
static struct kprobe *found_by_hit(void)
{
	static typeof(get_kprobe) *lookup;
	struct kprobe *found;

	if (!extras_of->addr)
		return NULL;
	if (!lookup)
		lookup = KSYM(get_kprobe);
	if (!lookup)
		return NULL;
	preempt_disable();
	found = lookup(extras_of->addr);
	preempt_enable();
	return found;
}

/* On return no CPU is in a hit, and none begins one. */
static int pause_hits(void)
{
	int err = disable_kprobe(extras_of);

	if (!err)
		synchronize_rcu();
	return err;
}

static int take_post_handler_off(struct kprobe *found)
{
	int err = pause_hits();

	if (err)
		return err;
	extras_of->post_handler = NULL;
	found->post_handler = NULL;
	return enable_kprobe(extras_of);
}

#ifdef CONFIG_OPTPROBES
/*
 * Leaves what try_to_optimize_kprobe() leaves of a kprobe that cannot be
 * optimised: the kprobe itself is in the kernel's table, and the aggregator is
 * freed but for the copy of the instruction, which is the kprobe's own. The
 * kernel's lock for this, kprobe_mutex, is in no kallsyms without
 * CONFIG_KALLSYMS_ALL: nothing else may register a kprobe meanwhile.
 */
static int take_aggregator_off(struct kprobe *aggregator)
{
	typeof(arch_remove_optimized_kprobe) *remove = KSYM(arch_remove_optimized_kprobe);
	struct optimized_kprobe *freed = container_of(aggregator, struct optimized_kprobe, kp);
	int err;

	if (!remove)
		return -EOPNOTSUPP;
	if (!list_is_singular(&extras_of->list) || aggregator->flags & KPROBE_FLAG_OPTIMIZED)
		return -EBUSY;
	err = pause_hits();
	if (err)
		return err;
	list_del_init(&extras_of->list);
	hlist_replace_rcu(&aggregator->hlist, &extras_of->hlist);
	/* Hits of other kprobes walk the same list of the table. */
	synchronize_rcu();
	remove(freed);
	kfree(freed);
	return enable_kprobe(extras_of);
}
#else
static int take_aggregator_off(struct kprobe *aggregator)
{
	return -EBUSY;
}
#endif

static bool has_aggregator(const struct kprobe *found)
{
	return found && found != extras_of;
}

static bool has_post_handler(const struct kprobe *found)
{
	return found && found->post_handler;
}

/*
 * The kernel's lock on this module's parameters serialises writers, and holds the
 * module's exit function: what a hit finds is not freed meanwhile.
 */
static int set_extra(const char *text, bool (*has)(const struct kprobe *), int (*take_off)(struct kprobe *))
{
	struct kprobe *found;
	bool wanted;
	int err = report_usable() ?: kstrtobool(text, &wanted);

	if (err)
		return err;
	found = found_by_hit();
	if (wanted == has(found))
		return 0;
	return wanted || !found ? -EINVAL : take_off(found);
}

static int set_aggregator(const char *text, const struct kernel_param *param)
{
	return set_extra(text, has_aggregator, take_aggregator_off);
}

static int get_aggregator(char *line, const struct kernel_param *param)
{
	return report_usable() ?: sysfs_emit(line, "%d\n", has_aggregator(found_by_hit()));
}

static const struct kernel_param_ops aggregator_ops = {
	.set = set_aggregator,
	.get = get_aggregator,
};
module_param_cb(aggregator, &aggregator_ops, NULL, 0644);

static int set_post_handler(const char *text, const struct kernel_param *param)
{
	return set_extra(text, has_post_handler, take_post_handler_off);
}

static int get_post_handler(char *line, const struct kernel_param *param)
{
	return report_usable() ?: sysfs_emit(line, "%d\n", has_post_handler(found_by_hit()));
}

static const struct kernel_param_ops post_handler_ops = {
	.set = set_post_handler,
	.get = get_post_handler,
};
module_param_cb(post_handler, &post_handler_ops, NULL, 0644);
