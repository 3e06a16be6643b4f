// SPDX-License-Identifier: GPL-2.0-only
// A plugin of QEMU's TCG that counts what each of several CPUs executes, and the lines of memory that move between them.
//
//   -plugin file=cpus.so,out=FILE
//
// It is for QEMU's single thread of several CPUs (thread=single) under -icount, which executes them in turns. A program
// (images/guest/turns.c) says by marks (images/guest/region.h) what to count: the leader's REGION_ARM forgets everything
// and follows all lines from then on, REGION_BEGIN and REGION_END bound what a CPU executes that counts, and the leader's
// REGION_KEEP writes to FILE
//
//   cpus ALL LINES                             instructions of all CPUs between the leader's two, contended lines (lines.h)
//   cpu NUMBER INSTRUCTIONS MOVED CONTENDED    of each CPU, between its two: lines that it got from others' caches, and
//                                              accesses to contended lines. The leader is 0, the others come in the order
//                                              of their turns, the same in each batch (executing.h)
//   moved ADDRESS COUNT                        of each instruction (its virtual address in hex) that got lines
//   error REASON                               nothing follows that could be used
//
// Lines have 64 bytes. Only data are followed: code that is fetched is no access, and nor are the stack accesses of
// exceptions, which QEMU does not show. Counting begins with the first REGION_ARM and stays: see count.c.
#include "executing.h"
#include "host.h"
#include "lines.h"
#include "marks.h"
#include "output.h"
#include "physical.h"
#include "qemu_plugin.h"
#include "region.h"
#include "translations.h"

enum { TEXT = 96, PLACES = 1 << 12, PAGE = 4096 };

struct cpu {
	uint64_t instructions, moved;
	bool is_open;
};

struct place {
	uint64_t address, count;
};

static struct cpu cpus[CPUS];
static struct place places[PLACES];	// by their addresses; count 0 is free
static uint64_t all;
static unsigned int leader, open_cpus;
static bool is_armed, follows, has_room;

static void put_line(const char *format, uint64_t one, uint64_t two, uint64_t three, uint64_t four)
{
	char line[TEXT];

	put(line, (size_t)snprintf(line, sizeof(line), format, (unsigned long)one, (unsigned long)two, (unsigned long)three,
				   (unsigned long)four));
}

static void put_counts(void)
{
	put_line("cpus %lu %lu\n", all, contended_lines(), 0, 0);
	for (unsigned int i = 0; i < CPUS; i++)
		if (cpus[i].instructions)
			put_line("cpu %lu %lu %lu %lu\n", i, cpus[i].instructions, cpus[i].moved, contended_accesses(i));
	for (uint32_t i = 0; i < PLACES; i++)
		if (places[i].count)
			put_line("moved %lx %lu\n", places[i].address, places[i].count, 0, 0);
}

static void keep(void)
{
	if (!has_room)
		put("error more lines than there is room for\n", 40);
	else if (!tells_cpus())
		put("error QEMU shows no gs_base\n", 28);
	else
		put_counts();
	flush_output();
}

static void follow_anew(void)
{
	forget_others();
	forget_lines();
	for (int i = 0; i < CPUS; i++)
		cpus[i] = (struct cpu){0};
	for (uint32_t i = 0; i < PLACES; i++)
		places[i].count = 0;
	all = 0;
	open_cpus = 0;
	leader = executing_cpu();
	follows = has_room = true;
	if (!is_armed)
		translate_anew();
	is_armed = true;
}

static void execute_block(unsigned int vcpu, void *data)
{
	(void)data;
	begin_block(vcpu);
}

static void pass_mark(unsigned int vcpu, void *mark)
{
	const unsigned int number = executing_cpu();
	struct cpu *cpu = cpus + number;

	(void)vcpu;
	if ((long)mark == REGION_ARM)
		follow_anew();
	if (number >= CPUS)
		return;
	// The marks of the others are among what the leader's clock counts.
	all += number != leader && cpus[leader].is_open;
	switch ((long)mark) {
	case REGION_BEGIN:
		if (follows && !cpu->is_open)
			open_cpus++;
		cpu->is_open = follows;
		break;
	case REGION_END:
		if (cpu->is_open && !--open_cpus)
			follows = false;
		cpu->is_open = false;
		break;
	case REGION_KEEP:
		if (is_armed && !follows)
			keep();
		break;
	}
}

static void execute(unsigned int vcpu, void *data)
{
	const unsigned int number = executing_cpu();

	(void)vcpu;
	(void)data;
	all += cpus[leader].is_open;
	if (number < CPUS)
		cpus[number].instructions += cpus[number].is_open;
}

static void note_moved(uint64_t address, uint64_t count)
{
	for (uint32_t at = (uint32_t)(address * 0x9e3779b97f4a7c15u >> 32) % PLACES, i = 0; i < PLACES; i++) {
		struct place *place = places + (at + i) % PLACES;

		if (place->count && place->address != address)
			continue;
		place->address = address;
		place->count += count;
		return;
	}
	has_room = false;
}

static void access_page(unsigned int number, qemu_plugin_meminfo_t info, uint64_t address, uint32_t size, uint64_t from)
{
	const bool is_open = cpus[number].is_open;
	uint64_t physical;
	uint32_t moved;

	if (!find_data(info, address, &physical))
		return;
	moved = access_lines(number, physical, size, qemu_plugin_mem_is_store(info), is_open, &has_room);
	if (!is_open || !moved)
		return;
	cpus[number].moved += moved;
	note_moved(from, moved);
}

static void access_memory(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *from)
{
	uint32_t size = 1u << qemu_plugin_mem_size_shift(info), left = PAGE - address % PAGE;
	const unsigned int number = executing_cpu();

	(void)vcpu;
	if (!follows || number >= CPUS)
		return;
	access_page(number, info, address, size < left ? size : left, (uint64_t)from);
	if (size > left)
		access_page(number, info, address + left, size - left, (uint64_t)from);
}

static long mark_at(const struct qemu_plugin_insn *insn)
{
	uint8_t bytes[MARK_SIZE];

	if (qemu_plugin_insn_size(insn) != MARK_SIZE)
		return 0;
	read_bytes(insn, bytes, sizeof(bytes));
	return mark_in(bytes, sizeof(bytes));
}

static void look_at_translation(struct qemu_plugin_tb *tb)
{
	bool is_followed = is_armed;

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		long mark = mark_at(insn);

		if (mark) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, pass_mark, QEMU_PLUGIN_CB_NO_REGS, (void *)mark);
			is_followed = true;
		} else if (is_armed) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, execute, QEMU_PLUGIN_CB_NO_REGS, NULL);
			qemu_plugin_register_vcpu_mem_cb(insn, access_memory, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
							 (void *)qemu_plugin_insn_vaddr(insn));
		}
	}
	if (is_followed)	// called before what is registered for its instructions
		qemu_plugin_register_vcpu_tb_exec_cb(tb, execute_block, QEMU_PLUGIN_CB_R_REGS, NULL);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	bool is_writable = false;

	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			is_writable = open_output(argv[i] + 4);
		else
			return 1;
	if (!is_writable)
		return 1;
	look_at_translations(id, info, look_at_translation);
	return 0;
}
