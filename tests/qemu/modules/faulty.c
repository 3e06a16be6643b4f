// SPDX-License-Identifier: GPL-2.0-only
/*
 * Goes wrong in the way that its parameter names, in a function that is called after it: lab_fault_NAME.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/kobject.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/panic.h>
#include <linux/preempt.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include <asm/desc.h>
#include <asm/nmi.h>

static char *fault = "";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "What goes wrong, see faults[]");

static int *volatile nowhere;
static volatile int zero;

static noinline int lab_fault_null(void)
{
	return *nowhere;
}

static noinline int lab_fault_write(void)
{
	*(volatile int *)0xfffff000ul = 1;
	return 0;
}

static noinline int lab_fault_jump(void)
{
	int (*volatile target)(void) = (int (*)(void))nowhere;

	return target() + 1;
}

/* A non-canonical address on 64 bit; on 32 bit a segment that is not there. */
static noinline int lab_fault_protection(void)
{
#ifdef CONFIG_X86_64
	return *(volatile int *)0xdead000000000100ul;
#else
	asm volatile("movw %w0, %%es" : : "r"(0x1234));
	return 0;
#endif
}

static noinline int lab_fault_divide(void)
{
	return jiffies / zero;
}

static noinline int lab_fault_bug(void)
{
	BUG_ON(!zero);
	return 0;
}

static noinline int lab_fault_warn(void)
{
	WARN(!zero, "this is only a test");
	return 0;
}

static noinline int lab_fault_panic(void)
{
	panic("this is only a test");
	return 0;
}

static noinline int lab_fault_spin(void)
{
	local_irq_disable();
	for (;;)
		cpu_relax();
	return 0;
}

static int lab_fault_ignore(unsigned int type, struct pt_regs *registers)
{
	return NMI_HANDLED;
}

/* Where not even an NMI makes the kernel say where it is. */
static noinline int lab_fault_deaf(void)
{
	register_nmi_handler(NMI_LOCAL, lab_fault_ignore, 0, "faulty");
	return lab_fault_spin();
}

/* For the watchdog of soft lock-ups, where the kernel has one. */
static noinline int lab_fault_busy(void)
{
	preempt_disable();
	for (;;)
		cpu_relax();
	return 0;
}

/* gcc 12 warns of what is meant. */
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static noinline int lab_fault_stack(int depth)
{
	volatile char room[512];

	memset((char *)room, depth, sizeof(room));
	return lab_fault_stack(depth + 1) + room[depth & 511];
}

static noinline int lab_fault_stack_overflow(void)
{
	return lab_fault_stack(0);
}

/* Without an interrupt descriptor table the next exception resets the machine. */
static noinline int lab_fault_triple(void)
{
	const struct desc_ptr none = {};

	local_irq_disable();
	load_idt(&none);
	asm volatile("int3");
	return 0;
}

static noinline int lab_fault_memory(void)
{
	unsigned long pages = 0;

	while (alloc_page(GFP_KERNEL))
		pages++;
	pr_info("%lu pages\n", pages);
	return -ENOMEM;
}

static noinline int lab_fault_sleep(void)
{
	preempt_disable();
	schedule_timeout_uninterruptible(1);
	preempt_enable();
	return 0;
}

static noinline int lab_fault_list(void)
{
	static LIST_HEAD(list);
	struct list_head one = {};

	list.next = &one;
	list_add(&one, &list);
	return 0;
}

static noinline int lab_fault_refcount(void)
{
	refcount_t count = REFCOUNT_INIT(0);

	refcount_inc(&count);
	return 0;
}

static noinline int lab_fault_hung(void)
{
	DECLARE_COMPLETION_ONSTACK(never);

	wait_for_completion(&never);
	return 0;
}

static noinline int lab_fault_deadlock(void)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	spin_lock(&lock);
	return 0;
}

static noinline int lab_fault_large(void)
{
	void *volatile room = kmalloc(KMALLOC_MAX_SIZE, GFP_KERNEL);

	return room != NULL;
}

/* A sentence and a call trace, with neither a banner nor a taint. */
static noinline int lab_fault_twice(void)
{
	struct kobject *first = kobject_create_and_add("lab_twice", kernel_kobj);
	struct kobject *second = kobject_create_and_add("lab_twice", kernel_kobj);

	kobject_put(second);
	kobject_put(first);
	return 0;
}

/* What __warn() of Linux 6.19 prints, on any kernel. */
static noinline int lab_fault_banner(void)
{
	pr_warn("------------[ cut here ]------------\n");
	pr_warn("WARNING: %s:%d at %pS, CPU#%d: %s/%d\n", "faulty.c", __LINE__, lab_fault_banner, raw_smp_processor_id(),
		current->comm, current->pid);
	dump_stack();
	pr_warn("---[ end trace 0000000000000000 ]---\n");
	add_taint(TAINT_WARN, LOCKDEP_STILL_OK);
	return 0;
}

static const struct {
	const char *name;
	int (*act)(void);
} faults[] = {
	{ "null", lab_fault_null },
	{ "write", lab_fault_write },
	{ "jump", lab_fault_jump },
	{ "protection", lab_fault_protection },
	{ "divide", lab_fault_divide },
	{ "bug", lab_fault_bug },
	{ "warn", lab_fault_warn },
	{ "panic", lab_fault_panic },
	{ "spin", lab_fault_spin },
	{ "deaf", lab_fault_deaf },
	{ "busy", lab_fault_busy },
	{ "stack", lab_fault_stack_overflow },
	{ "triple", lab_fault_triple },
	{ "memory", lab_fault_memory },
	{ "sleep", lab_fault_sleep },
	{ "list", lab_fault_list },
	{ "refcount", lab_fault_refcount },
	{ "hung", lab_fault_hung },
	{ "deadlock", lab_fault_deadlock },
	{ "large", lab_fault_large },
	{ "twice", lab_fault_twice },
	{ "banner", lab_fault_banner },
};

static int __init faulty_init(void)
{
	size_t number;

	for (number = 0; number < ARRAY_SIZE(faults); number++)
		if (!strcmp(fault, faults[number].name))
			return faults[number].act();
	pr_err("faulty: no fault '%s'\n", fault);
	return -EINVAL;
}

module_init(faulty_init);
MODULE_DESCRIPTION("Goes wrong on request");
MODULE_LICENSE("GPL");
