// SPDX-License-Identifier: GPL-2.0-only
// Accesses whose misses are known by hand, for the caches of a Pentium 4: test_cache_models.py has the figures.
//
// Each pattern has an instruction of its own: a load of PLACE(%eax), or a store, with places that are all on one line.
#include "workload.h"

enum { LINE = 64, PAGE = 4096, WAY = 2048, LARGE = 2 << 20 };

static char written[LARGE] __attribute__((aligned(PAGE))), untouched[LARGE] __attribute__((aligned(PAGE)));

// So many accesses, one every STRIDE bytes, and none to anything else.
#define SWEEP(instruction, start, accesses, stride)                                               \
	do {                                                                                      \
		char *at = (start);                                                               \
		long left = (accesses);                                                           \
                                                                                                  \
		__asm__ volatile("1: " instruction "\n\tadd %[step], %%eax\n\tdec %%ecx\n\tjnz 1b" \
				 : "+a"(at), "+c"(left)                                           \
				 : [step] "i"(stride)                                             \
				 : "edx", "memory", "cc");                                        \
	} while (0)
#define LOADS(place, start, accesses, stride) SWEEP("movl " #place "(%%eax), %%edx", start, accesses, stride)
#define STORES(place, start, accesses, stride) SWEEP("movl %%edx, " #place "(%%eax)", start, accesses, stride)

// 1024 lines in the order of a generator with full period, each pointing to the next.
static char *chain[1024][LINE / sizeof(char *)] __attribute__((aligned(PAGE)));

void workload_setup(void)
{
	memset(written, 1, sizeof(written));
	for (unsigned i = 0; i < 1024; i++)
		chain[i][0] = (char *)chain[(5 * i + 3) % 1024];
}

void workload(void)
{
	// A set of the first level that the stack is far from.
	char *conflicting = written + ((unsigned long)__builtin_frame_address(0) + WAY / 2) % WAY / LINE * LINE;
	long left;
	char *at;

	LOADS(4, written, 256, LINE);		// twice the cache: evicts all, and misses all
	LOADS(8, written, 256, LINE);		// again: with LRU no line has stayed
	LOADS(12, written + 3 * PAGE, 64, LINE);	// half the cache, which the last ones of the sweep have just filled
	LOADS(16, written + PAGE, 64, LINE);	// another half
	LOADS(20, written + PAGE, 64, LINE);	// again: hits
	STORES(24, written + 8 * PAGE, 256, LINE);	// a store allocates
	LOADS(62, written, 256, LINE);		// each on two lines, of which the next one has the second
	LOADS(28, conflicting, 5, WAY);		// one line more than a set has
	LOADS(32, conflicting, 5, WAY);
	LOADS(36, conflicting, 4, WAY);
	LOADS(40, conflicting, 4, WAY);
	LOADS(44, written, 65, PAGE);		// one page more than the TLB has
	LOADS(48, written, 65, PAGE);
	LOADS(52, written, 32, PAGE);
	LOADS(56, written, 32, PAGE);
	LOADS(60, written, LARGE / 256, 256);	// in every fourth set of level 2, four times the lines of each
	LOADS(1, written, LARGE / 256, 256);
	LOADS(2, untouched, LARGE / 256, 256);	// never written: each page is the same page of zeros

	left = 1024;
	at = (char *)chain;
	__asm__ volatile("1: movl (%%eax), %%eax\n\tdec %%ecx\n\tjnz 1b" : "+a"(at), "+c"(left) : : "memory", "cc");
	left = 1024;
	__asm__ volatile("1: movl (%%edx), %%edx\n\tdec %%ecx\n\tjnz 1b" : "+d"(at), "+c"(left) : : "memory", "cc");

	// 32 KiB of code, twice what level 1 has; 8 KiB in blocks of half a line, executed twice; 5 pages of one set of the
	// TLB, twice.
	__asm__ volatile("jmp 1f\n\t.balign 4096\n1:\n\t"
			 ".rept 512\n\tjmp 2f\n\t.balign 64\n2:\n\t.endr");
	__asm__ volatile("mov $2, %%ecx\n\tjmp 1f\n\t.balign 4096\n1:\n\t"
			 ".rept 256\n\tjmp 2f\n\t.balign 32\n2:\n\t.endr\n\t"
			 "dec %%ecx\n\tjnz 1b" : : : "ecx", "cc");
	__asm__ volatile("mov $2, %%ecx\n\tjmp 1f\n\t.balign 4096\n1:\n\t"
			 ".rept 5\n\tjmp 2f\n\t.skip 32 * 4096 - 5\n2:\n\t.endr\n\t"
			 "dec %%ecx\n\tjnz 1b" : : : "ecx", "cc");
}
