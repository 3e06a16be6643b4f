/* SPDX-License-Identifier: GPL-2.0-only */
/* How does a handler record an event, and how does the host read what was recorded? */
#ifndef LAB_RING_H
#define LAB_RING_H

#include <linux/compiler.h>
#include <linux/percpu-defs.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <asm/local.h>
#include <asm/msr.h>
#include <asm/ptrace.h>

#define RING_SLOTS	4096	/* a power of two, so that they go on in order when the count wraps around */

/*
 * What was hit, and what the arguments of its events are. The registers and the
 * words of the stack are those on entry to the probed function, stack[0] being
 * its return address:
 *
 *   KPROBE, DJPROBE, FPROBE
 *                    i386: address, pair(ax, dx), pair(cx, stack[1]), stack[0]
 *                    x86_64: address, ax, dx, cx, stack[1], stack[0]
 *   JPROBE           address, the system call's first two arguments
 *   KRETPROBE        address, the function's return value, stack[0]
 *   SYSCALL          the system call's number, its first five arguments
 *   FTRACE           address, stack[0]
 *   TRACEPOINT       i386: two words, x86_64: five, as the registers have them: what
 *                    the tracepoint passes begins there
 *   STANDARD         the standard event's number, address (a marker's: 0), and two
 *                    values: a system call's number and the user's registers, else
 *                    a marker's number and pointer, or a function's first two
 *                    arguments
 *
 * Arguments that are not listed are 0. The host's copy of this is
 * orchestrator/probes/events.py.
 */
enum lab_event {
	LAB_EVENT_KPROBE = 1,
	LAB_EVENT_JPROBE,
	LAB_EVENT_DJPROBE,
	LAB_EVENT_KRETPROBE,
	LAB_EVENT_SYSCALL,
	LAB_EVENT_FTRACE,
	LAB_EVENT_STANDARD,
	LAB_EVENT_TRACEPOINT,
	LAB_EVENT_FPROBE,
};

struct ring_event {
	u64 tsc;
	u32 event;
	u32 pid;
	u64 args[6];
};

/* A CPU's ring as the host reads it, the same on i386 as on x86_64. */
struct ring {
	char magic[8];
	u32 version;
	u32 cpu;
	u32 slots;
	u16 event_size;
	u16 word_size;
	/* Events recorded since the ring was emptied, overwritten ones too; modulo 2^32 on i386. */
	union {
		local_t written;
		u64 written_as_read;
	};
	struct ring_event events[RING_SLOTS];
};

DECLARE_PER_CPU(struct ring *, cpu_ring);

/*
 * Records an event in the CPU's own ring, over the oldest one where the ring is
 * full. For recording handlers, in any context, with preemption off. Inline, as
 * on i386 passing six arguments of 64 bits would add half the cost.
 */
static __always_inline void record_event(enum lab_event event, u64 a0, u64 a1, u64 a2, u64 a3, u64 a4,
					 u64 a5)
{
	struct ring *ring = __this_cpu_read(cpu_ring);
	/* One instruction, so that an interrupt in this function takes another slot. */
	unsigned long number = local_inc_return(&ring->written) - 1;
	struct ring_event *slot = &ring->events[number % RING_SLOTS];

	slot->tsc = rdtsc();
	slot->event = event;
	slot->pid = current->pid;
	slot->args[0] = a0;
	slot->args[1] = a1;
	slot->args[2] = a2;
	slot->args[3] = a3;
	slot->args[4] = a4;
	slot->args[5] = a5;
}

/* Two values of 32 bits in one argument. */
static __always_inline u64 record_pair(u32 high, u32 low)
{
	return (u64)high << 32 | low;
}

/* An event of a probe at a function's entry, with the registers there. */
static __always_inline void record_registers(enum lab_event event, const void *address,
					     const struct pt_regs *regs)
{
	const unsigned long *stack = (const unsigned long *)regs->sp;

#ifdef CONFIG_X86_32
	record_event(event, (unsigned long)address, record_pair(regs->ax, regs->dx),
		     record_pair(regs->cx, stack[1]), stack[0], 0, 0);
#else
	record_event(event, (unsigned long)address, regs->ax, regs->dx, regs->cx, stack[1], stack[0]);
#endif
}

/*
 * Makes an empty ring for every CPU, if there are none yet, and shows them as
 * <debugfs>/<module's name>/cpu<number>. No handler may record before. -ENOMEM
 * leaves none behind. May sleep.
 */
int ring_allocate(void);

/* Empties the rings, if there are any. No handler may be recording. */
void ring_clear(void);

/* Frees the rings. No handler may be recording, or record later. May sleep. */
void ring_free(void);

#endif
