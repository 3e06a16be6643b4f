// SPDX-License-Identifier: GPL-2.0-only
// See executing.h.
#include "executing.h"
#include "host.h"
#include "lines.h"

// Below are the bits of an address space's number (PCID), and one that says whether the kernel or the user has these
// tables (PTI_USER_PGTABLE_BIT of arch/x86/include/asm/tlbflush.h).
enum { TABLES = 13 };

static uint64_t tables[CPUS], current;
static unsigned int known, executing;
static struct qemu_plugin_register *base;
static struct glib_array *value;

static void find_base(void)
{
	struct glib_array *registers = qemu_plugin_get_registers();
	const unsigned int size = g_array_get_element_size(registers);

	for (unsigned int i = 0; i < registers->length; i++) {
		const qemu_plugin_reg_descriptor *one = (const void *)(registers->data + (size_t)i * size);

		if (!strcmp(one->name, "cr3"))
			base = one->handle;
	}
	value = g_byte_array_new();
}

static uint64_t read_tables(void)
{
	uint64_t read = 0;

	g_byte_array_set_size(value, 0);
	qemu_plugin_read_register(base, value);
	memcpy(&read, value->data, value->length < sizeof(read) ? value->length : sizeof(read));
	return read >> TABLES;
}

void begin_block(unsigned int vcpu)
{
	if (!qemu_plugin_get_registers) {
		executing = vcpu;
		return;
	}
	if (!value)
		find_base();
	current = base ? read_tables() : 0;
	for (executing = 0; executing < known && tables[executing] != current; executing++)
		;
	if (executing == known && known < CPUS)
		tables[known++] = current;
}

unsigned int executing_cpu(void)
{
	return executing;
}

void forget_others(void)
{
	if (!qemu_plugin_get_registers)
		return;
	tables[0] = current;
	known = 1;
	executing = 0;
}
