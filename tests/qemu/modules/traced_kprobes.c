// SPDX-License-Identifier: GPL-2.0-only
/* Which kprobes come, go, and are hit, through the function tracer and beside it? */
#include <linux/hash.h>
#include <linux/kprobes.h>
#include <linux/poison.h>
#include <linux/sysfs.h>

#include "traced_kprobes.h"

#ifndef CONFIG_KPROBE_HASH_BITS
#define CONFIG_KPROBE_HASH_BITS 6
#endif

static struct trial {
	struct kprobe kp;
	bool registered;
	unsigned long hits, strays;
} trials[OTHERS_END];

/* A place for a kprobe at every byte: enough of them belong to any list of the hash. */
enum { SLED = 0x8000 };
void kprobe_sled(void);
asm(".pushsection .text\n"
	".balign 16, 0xcc\n"
	".globl kprobe_sled\n"
	".type kprobe_sled, @function\n"
	"kprobe_sled:\n"
	"	.fill 0x8000, 1, 0x90\n"
	"	ret\n"
	".size kprobe_sled, . - kprobe_sled\n"
	".popsection\n");

static int hit(struct kprobe *kp, struct pt_regs *regs)
{
	struct trial *trial = container_of(kp, struct trial, kp);

	if (regs->ip - 1 == (unsigned long)kp->addr)
		trial->hits++;
	else
		trial->strays++;
	return 0;
}
NOKPROBE_SYMBOL(hit);

/* Keeps the kernel from making a jump of it: a jump looks nothing up. */
static void post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(post);

static int put(int number, void *address, kprobe_post_handler_t post_handler)
{
	struct trial *trial = &trials[number];
	int err;

	trial->kp = (struct kprobe){
		.addr = address,
		.pre_handler = hit,
		.post_handler = post_handler,
	};
	err = register_kprobe(&trial->kp);
	trial->registered = !err;
	return err;
}

int put_traced(int number, void (*function)(void))
{
	int err = put(number, function, NULL);

	return err ?: kprobe_ftrace(&trials[number].kp) ? 0 : -EOPNOTSUPP;
}

int put_single_stepped(int number, void (*function)(void))
{
	return put(number, function, post);
}

int put_others(void (*function)(void))
{
	u32 list = hash_ptr(function, CONFIG_KPROBE_HASH_BITS);
	u8 *place = (u8 *)kprobe_sled;
	int number = OTHERS, err;

	for (; place < (u8 *)kprobe_sled + SLED && number < OTHERS_END; place++) {
		if (hash_ptr(place, CONFIG_KPROBE_HASH_BITS) != list)
			continue;
		err = put(number++, place, post);
		if (err)
			return err;
	}
	return number < OTHERS_END ? -ENOSPC : 0;
}

void run_others(void *unused)
{
	kprobe_sled();
}

void take(int number)
{
	if (trials[number].registered)
		unregister_kprobe(&trials[number].kp);
	trials[number].registered = false;
}

void take_all(void)
{
	int i;

	for (i = 0; i < OTHERS_END; i++)
		take(i);
}

bool is_removed(int number)
{
	return READ_ONCE(trials[number].kp.hlist.pprev) == LIST_POISON2;
}

int tell_hits(char *page)
{
	int i, size = 0;

	for (i = 0; i < OTHERS_END; i++)
		size += sysfs_emit_at(page, size, "%lu %lu\n", trials[i].hits, trials[i].strays);
	return size;
}

void reset_hits(void)
{
	int i;

	for (i = 0; i < OTHERS_END; i++)
		trials[i].hits = trials[i].strays = 0;
}
