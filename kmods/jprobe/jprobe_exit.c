// SPDX-License-Identifier: GPL-2.0-only
/*
 * Through which int3 does a jprobe's handler leave?
 *
 * The kernel looks for a kprobe at every int3, this one too, and finds none. If
 * the int3 is in the probed address's list, that search meets one kprobe more: a
 * few instructions a hit, which depend on the address that the module is loaded
 * at. So there are several exits, and the one in use is in another list. Two are
 * enough: hash_ptr() multiplies by the golden ratio, which keeps neighbours (of up
 * to 33 bytes, in 64 lists) apart. The others are for kernels whose compilers make
 * larger functions.
 */
#include <linux/kernel.h>
#include <linux/kprobes.h>

#include "jprobe_exit.h"
#include "kprobe_list.h"

/* Functions in C, not in assembly: the compiler adds what this kernel needs before a function's code. */
#define EXIT(name)							\
extern const char name##_trapped[];					\
/* Not cloned, as its label must exist once. */				\
static noinline __noclone void name(void)				\
{									\
	asm volatile("int3\n"						\
		     #name "_trapped:\n"				\
		     "	nop\n" ::: "memory");				\
}									\
NOKPROBE_SYMBOL(name)

EXIT(jprobe_exit_0);
EXIT(jprobe_exit_1);
EXIT(jprobe_exit_2);
EXIT(jprobe_exit_3);

static const struct {
	void (*leave)(void);
	const char *trapped;
} exits[] = {
	{ jprobe_exit_0, jprobe_exit_0_trapped },
	{ jprobe_exit_1, jprobe_exit_1_trapped },
	{ jprobe_exit_2, jprobe_exit_2_trapped },
	{ jprobe_exit_3, jprobe_exit_3_trapped },
};

void (*jprobe_exit)(void);
unsigned long jprobe_exit_trapped;

void choose_jprobe_exit(const void *probed)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(exits) - 1 &&
	       kprobe_list(exits[i].trapped - INT3_INSN_SIZE) == kprobe_list(probed))
		i++;
	jprobe_exit = exits[i].leave;
	jprobe_exit_trapped = (unsigned long)exits[i].trapped;
}
