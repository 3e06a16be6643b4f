// SPDX-License-Identifier: GPL-2.0-only
/*
 * How are kprobes kept out of the bytes under a djprobe's jump?
 *
 * register_kprobe() refuses an address that a BUG() or WARN() is at: those of the
 * kernel and of every module (check_kprobe_address_safe() of kernel/kprobes.c). So
 * this module's table of them has room for addresses under jumps. Nothing else
 * looks there but the handler of ud2, which no jump covers.
 */
#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/kernel.h>

#include "djprobe_reserve.h"
#include "djprobe_stub.h"

#ifdef CONFIG_GENERIC_BUG

/* Aligned as the compiler's own entries are, between which it lies. */
static struct bug_entry djprobe_reserved[DETOUR_COUNT * DJPROBE_COVERED_MAX]
	__used __section("__bug_table") __aligned(__alignof__(struct bug_entry));

bool djprobe_reserve_works(void)
{
	return true;
}

#ifdef CONFIG_GENERIC_BUG_RELATIVE_POINTERS
/* A free entry has its own address, which is no text. */
static void write_address(struct bug_entry *entry, unsigned long addr)
{
	WRITE_ONCE(entry->bug_addr_disp, addr ? addr - (unsigned long)&entry->bug_addr_disp : 0);
}

static unsigned long read_address(const struct bug_entry *entry)
{
	return entry->bug_addr_disp ? (unsigned long)&entry->bug_addr_disp + entry->bug_addr_disp : 0;
}
#else
static void write_address(struct bug_entry *entry, unsigned long addr)
{
	WRITE_ONCE(entry->bug_addr, addr);
}

static unsigned long read_address(const struct bug_entry *entry)
{
	return entry->bug_addr;
}
#endif

void djprobe_reserve(const u8 *addr, size_t size)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(djprobe_reserved) && size; i++) {
		if (read_address(&djprobe_reserved[i]))
			continue;
		write_address(&djprobe_reserved[i], (unsigned long)addr);
		addr++;
		size--;
	}
}

void djprobe_release(const u8 *addr, size_t size)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(djprobe_reserved); i++)
		if (read_address(&djprobe_reserved[i]) - (unsigned long)addr < size)
			write_address(&djprobe_reserved[i], 0);
}

#else

bool djprobe_reserve_works(void)
{
	return false;
}

void djprobe_reserve(const u8 *addr, size_t size)
{
}

void djprobe_release(const u8 *addr, size_t size)
{
}

#endif
