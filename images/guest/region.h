// SPDX-License-Identifier: GPL-2.0-only
// Marks that tell QEMU's counting plugin (images/plugin) where a program reads its clock.
//
// A mark is a nop of eight bytes that reads no memory: nopl 0x4b5000NN(%eax,%eax,1). In front of the first rdtsc and
// behind the second, none of them is timed. Without the plugin they do nothing; it finds them in any program, in user
// space and in the kernel, at whatever address.
#ifndef REGION_H
#define REGION_H

#define REGION_ARM 1	// count from now on; it may take some instructions until it does
#define REGION_BEGIN 2	// the region begins
#define REGION_END 3	// the region ends; it counts for nothing until it is kept
#define REGION_KEEP 4	// the last region was one to keep, and those that were added since the one kept before belong to it
#define REGION_DISARM 5	// count no more
#define REGION_ADD 6	// the last region was one to keep, together with the next one that is

#define REGION_OPCODE 0x00841f0f
#define REGION_MAGIC 0x4b500000

#define REGION_TEXT_OF(value) #value
#define REGION_TEXT(value) REGION_TEXT_OF(value)
#define REGION_MARK(mark) \
	".long " REGION_TEXT(REGION_OPCODE) ", " REGION_TEXT(REGION_MAGIC) " + " REGION_TEXT(mark) "\n\t"

// An instruction that loads from its own page into AL: QEMU tells a plugin the physical address of what it loads, and
// not its own, so this relates the two. For extended assembly.
#ifdef __i386__
#define REGION_SELF "7: movb 7b, %%al\n\t"
#else
#define REGION_SELF "7: movb 7b(%%rip), %%al\n\t"
#endif

#endif
