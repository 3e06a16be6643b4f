// SPDX-License-Identifier: GPL-2.0-only
/* What does a module know about the kernel's jump optimisation, and how does it delay it? */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/workqueue.h>

#include "ksym.h"
#include "optimiser.h"

/* Of enum in kernel/kprobes.c: the thread has nothing to do, or was woken for a pass. */
#define IDLE	0
#define KICKED	1

static struct delayed_work *work;
static atomic_t *state;
static void (*wait)(void);

bool optimiser_settle(void)
{
	work = (struct delayed_work *)ksym_lookup("optimizing_work");
	if (work) {
		flush_delayed_work(work);
		return true;
	}
	state = (atomic_t *)ksym_lookup("optimizer_state");
	wait = (void (*)(void))ksym_lookup("wait_for_kprobe_optimizer");
	if (!state || !wait)
		return false;
	wait();
	return true;
}

void optimiser_hold_ahead(void)
{
	if (!work)
		atomic_cmpxchg(state, IDLE, KICKED);
}

void optimiser_hold(void)
{
	if (work)
		cancel_delayed_work_sync(work);
}

void optimiser_release(void)
{
	if (work)
		return;
	atomic_cmpxchg(state, KICKED, IDLE);
	wait();
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
