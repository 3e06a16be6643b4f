// SPDX-License-Identifier: GPL-2.0-only
/*
 * In the style of bcc's libbpf-tools: the repository's own vmlinux.h, found in a folder per architecture, headers beside
 * the source, members that a kernel may lack behind bpf_core_field_exists(), and programs of which a loader would choose.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "bits.bpf.h"
#include "maps.bpf.h"
#include "readsize.h"

#ifndef OF_THE_TOOL
#error these are not the types of the tool
#endif
#ifndef SMALLEST
#define SMALLEST 0
#endif

const volatile u32 targ_tgid = 0;

struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct hist);
} hists SEC(".maps");

static struct hist empty;

static __always_inline u32 state_of(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return BPF_CORE_READ(old, state);
}

static __always_inline int count(size_t size)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32, state;
	struct hist *hist;
	u64 slot;

	if (size < SMALLEST || (targ_tgid && tgid != targ_tgid))
		return 0;
	state = state_of((void *)bpf_get_current_task());
	hist = lookup_or_insert(&hists, &tgid, &empty);
	if (!hist)
		return 0;
	slot = log2_of(size) + !!state;
	if (slot >= SLOTS)
		slot = SLOTS - 1;
	__sync_fetch_and_add(&hist->slots[slot], 1);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(on_read, struct file *file, char *buffer, size_t size)
{
	return count(size);
}

SEC("kprobe/vfs_read")
int BPF_KPROBE(on_read_by_kprobe, struct file *file, char *buffer, size_t size)
{
	return count(size);
}

/* No kernel of today has do_sync_read(): a loader that looks for it leaves this program out. */
SEC("kprobe/do_sync_read")
int BPF_KPROBE(on_read_of_old, struct file *file, char *buffer, size_t size)
{
	return count(size);
}

/* libbpf has BPF_UPROBE since 1.2. */
SEC("uprobe")
int BPF_UPROBE(on_request, size_t size)
{
	return count(size);
}

char LICENSE[] SEC("license") = "GPL";
