// SPDX-License-Identifier: GPL-2.0-only
/* What does a module know about the kernel's jump optimisation, and how does it delay it? */
#include <linux/kprobes.h>
#include <linux/workqueue.h>

#include "ksym.h"
#include "optimiser.h"

static struct delayed_work *work;

bool optimiser_settle(void)
{
	work = (struct delayed_work *)ksym_lookup("optimizing_work");
	if (!work)
		return false;
	flush_delayed_work(work);
	return true;
}

void optimiser_hold(void)
{
	cancel_delayed_work_sync(work);
}

size_t kprobe_bytes(void)
{
	return sizeof(struct kprobe) + MAX_INSN_SIZE;
}

size_t optimised_kprobe_bytes(void)
{
#ifdef CONFIG_OPTPROBES
	/* As MAX_OPTINSN_SIZE has it; the template's labels are not exported. */
	unsigned long entry = ksym_lookup("optprobe_template_entry");
	unsigned long end = ksym_lookup("optprobe_template_end");

	if (entry && end > entry)
		return sizeof(struct optimized_kprobe) + (end - entry) + MAX_OPTIMIZED_LENGTH + JMP32_INSN_SIZE;
#endif
	return 0;
}
