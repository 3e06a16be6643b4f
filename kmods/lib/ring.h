/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How does a handler record an event, and how does the host read what was recorded? Each
 * CPU has a ring of 4096 events (RING_SLOTS), in debugfs NAME/cpu0, NAME/cpu1, ... of
 * module NAME; the oldest is overwritten. With report.h a module gets its rings when
 * "record" is chosen: its recording handler calls record_event() or record_registers(),
 * and the module never calls ring_allocate(), ring_clear() or ring_free().
 *
 * What the lab checks of each event (orchestrator/probes/events.py) goes by its kind: its
 * number and order, the process, the address and the arguments that enum lab_event lists.
 */
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

/**
 * enum lab_event - what was hit, which says what the arguments of an event are
 * @LAB_EVENT_KPROBE: i386: address, pair(ax, dx), pair(cx, stack[1]), stack[0];
 *		      x86_64: address, ax, dx, cx, stack[1], stack[0]
 * @LAB_EVENT_JPROBE: address, the system call's first two arguments
 * @LAB_EVENT_DJPROBE: as of a kprobe
 * @LAB_EVENT_KRETPROBE: address, the function's return value, stack[0]
 * @LAB_EVENT_SYSCALL: the system call's number, its first five arguments
 * @LAB_EVENT_FTRACE: address, stack[0]
 * @LAB_EVENT_STANDARD: the standard event's number, address (a marker's: 0), and two
 *			values: a system call's number and the user's registers, else a
 *			marker's number and pointer, or a function's first two arguments
 * @LAB_EVENT_TRACEPOINT: i386: two words, x86_64: five, as the registers have them: what
 *			  the tracepoint passes begins there
 * @LAB_EVENT_FPROBE: as of a kprobe
 * @LAB_EVENT_STACK: address, or a system call's number; how many functions the stack has,
 *		     and the four outermost return addresses, the last one first
 *
 * The registers and the words of the stack are those on entry to the probed function,
 * stack[0] being its return address. Arguments that are not listed are 0. The host's copy
 * of this is orchestrator/probes/events.py.
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
	LAB_EVENT_STACK,
};

/**
 * struct ring_event - an event as the host reads it
 * @tsc: the time stamp counter
 * @event: enum lab_event
 * @pid: the thread that hit the probe
 * @args: by the event
 */
struct ring_event {
	u64 tsc;
	u32 event;
	u32 pid;
	u64 args[6];
};

/**
 * struct ring - a CPU's ring as the host reads it, the same on i386 as on x86_64
 * @magic: "labring"
 * @version: 1
 * @cpu: the CPU's number
 * @slots: how many events it has room for
 * @event_size: bytes of struct ring_event
 * @word_size: bytes of a long
 * @written: events recorded since the ring was emptied, overwritten ones too; modulo 2^32 on i386
 * @written_as_read: the same, as the host reads it
 * @events: the next one goes to number @written modulo @slots
 */
struct ring {
	char magic[8];
	u32 version;
	u32 cpu;
	u32 slots;
	u16 event_size;
	u16 word_size;
	union {
		local_t written;
		u64 written_as_read;
	};
	struct ring_event events[RING_SLOTS];
};

DECLARE_PER_CPU(struct ring *, cpu_ring);

/**
 * record_event() - record an event in the CPU's own ring, over the oldest one where it is full
 * @event: what was hit
 * @a0: the event's arguments, 0 where it has fewer
 * @a1: see @a0
 * @a2: see @a0
 * @a3: see @a0
 * @a4: see @a0
 * @a5: see @a0
 *
 * For recording handlers. Inline, as on i386 passing six arguments of 64 bits would add
 * half the cost.
 *
 * Context: any, with preemption off.
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

/**
 * record_pair() - two values of 32 bits in one argument
 * @high: the upper half
 * @low: the lower half
 *
 * Return: the argument.
 */
static __always_inline u64 record_pair(u32 high, u32 low)
{
	return (u64)high << 32 | low;
}

/**
 * record_registers() - record an event of a probe at a function's entry
 * @event: LAB_EVENT_KPROBE, LAB_EVENT_DJPROBE or LAB_EVENT_FPROBE
 * @address: where the probe is
 * @regs: the registers there
 *
 * Context: any, with preemption off.
 */
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

/**
 * record_stack() - record the stack's functions, from the handler on
 * @place: where the probe is, or a system call's number
 *
 * For handlers HANDLER_STACK.
 *
 * Context: any.
 */
void record_stack(u64 place);

/**
 * record_stack_once() - the same, unless the unwinder itself has hit the probe
 * @place: see record_stack()
 *
 * For mechanisms that do not guard their handlers against recursion.
 *
 * Context: any.
 */
void record_stack_once(u64 place);

/**
 * ring_allocate() - make an empty ring for every CPU, if there are none yet, and show them in debugfs
 *
 * No handler may record before.
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM, which leaves none behind.
 */
int ring_allocate(void);

/**
 * ring_clear() - empty the rings, if there are any
 *
 * No handler may be recording.
 */
void ring_clear(void);

/**
 * ring_free() - free the rings
 *
 * No handler may be recording, or record later.
 *
 * Context: may sleep.
 */
void ring_free(void);

#endif
