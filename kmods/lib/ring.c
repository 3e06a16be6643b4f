// SPDX-License-Identifier: GPL-2.0-only
/* How are the rings of recorded events allocated and shown to the host? */
#include <linux/build_bug.h>
#include <linux/debugfs.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/stacktrace.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>

#include "ring.h"

#define RING_VERSION	1

static const char ring_magic[8] = "labring";

static_assert(sizeof(struct ring_event) == 64);
static_assert(offsetof(struct ring, events) == 32);
static_assert(sizeof(local_t) <= sizeof(u64));

DEFINE_PER_CPU(struct ring *, cpu_ring);

static DEFINE_PER_CPU(struct debugfs_blob_wrapper, ring_file);
static struct dentry *folder;

#define MOST_FRAMES	64

/* Inline, as the unwinder would have one more function to go through. */
static __always_inline void record_frames(u64 place)
{
	unsigned long frames[MOST_FRAMES], outermost[4] = { 0 };
	unsigned int depth, i;

#ifdef CONFIG_STACKTRACE
	depth = stack_trace_save(frames, MOST_FRAMES, 0);
#else
	depth = 0;	/* report.c refuses the handler */
#endif
	for (i = 0; i < ARRAY_SIZE(outermost) && i < depth; i++)
		outermost[i] = frames[depth - 1 - i];
	record_event(LAB_EVENT_STACK, place, depth, outermost[0], outermost[1], outermost[2], outermost[3]);
}

void notrace record_stack(u64 place)
{
	preempt_disable_notrace();
	record_frames(place);
	preempt_enable_notrace();
}
NOKPROBE_SYMBOL(record_stack);

/* In which context a stack is being recorded. Each interrupts only those before it, and never itself. */
static DEFINE_PER_CPU(unsigned int, recording_in);

void notrace record_stack_once(u64 place)
{
	unsigned int outer, context;

	preempt_disable_notrace();
	context = (preempt_count() & (NMI_MASK | HARDIRQ_MASK | SOFTIRQ_OFFSET)) | 1;
	outer = __this_cpu_read(recording_in);
	if (outer != context) {
		__this_cpu_write(recording_in, context);
		record_frames(place);
		__this_cpu_write(recording_in, outer);
	}
	preempt_enable_notrace();
}
NOKPROBE_SYMBOL(record_stack_once);

static int make_ring(unsigned int cpu)
{
	struct debugfs_blob_wrapper *file = per_cpu_ptr(&ring_file, cpu);
	struct ring *ring = vzalloc_node(sizeof(*ring), cpu_to_node(cpu));
	char name[16];

	if (!ring)
		return -ENOMEM;
	memcpy(ring->magic, ring_magic, sizeof(ring->magic));
	ring->version = RING_VERSION;
	ring->cpu = cpu;
	ring->slots = RING_SLOTS;
	ring->event_size = sizeof(struct ring_event);
	ring->word_size = sizeof(long);
	per_cpu(cpu_ring, cpu) = ring;

	file->data = ring;
	file->size = sizeof(*ring);
	snprintf(name, sizeof(name), "cpu%u", cpu);
	debugfs_create_blob(name, 0400, folder, file);
	return 0;
}

int ring_allocate(void)
{
	int cpu, err;

	if (folder)
		return 0;
	folder = debugfs_create_dir(KBUILD_MODNAME, NULL);
	err = PTR_ERR_OR_ZERO(folder);
	for_each_possible_cpu(cpu)
		err = err ?: make_ring(cpu);
	if (err)
		ring_free();
	return err;
}

void ring_clear(void)
{
	int cpu;

	if (!folder)
		return;
	for_each_possible_cpu(cpu) {
		struct ring *ring = per_cpu(cpu_ring, cpu);

		local_set(&ring->written, 0);
		memset(ring->events, 0, sizeof(ring->events));
	}
}

void ring_free(void)
{
	int cpu;

	/* Waits for readers of the files; does nothing without a folder. */
	debugfs_remove(folder);
	folder = NULL;
	for_each_possible_cpu(cpu) {
		vfree(per_cpu(cpu_ring, cpu));
		per_cpu(cpu_ring, cpu) = NULL;
	}
}
