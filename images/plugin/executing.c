// SPDX-License-Identifier: GPL-2.0-only
// See executing.h.
#include "executing.h"
#include "host.h"
#include "lines.h"

// The bit that is set in addresses of the kernel's half, and in the offsets of a CPU's memory that Linux has in these
// registers since 6.15. A program that writes such a value there (wrgsbase) would be taken for a CPU.
enum { KERNELS = 63 };

static uint64_t areas[CPUS], current;	// of memory that each CPU has for itself
static unsigned int known, executing;
// The kernel's is in one of these registers, the user's in the other: swapgs exchanges them.
static struct qemu_plugin_register *bases[2];
static struct glib_array *value;

static void find_bases(void)
{
	struct glib_array *registers = qemu_plugin_get_registers();
	const unsigned int size = g_array_get_element_size(registers);

	for (unsigned int i = 0; i < registers->length; i++) {
		const qemu_plugin_reg_descriptor *one = (const void *)(registers->data + (size_t)i * size);

		if (!strcmp(one->name, "gs_base"))
			bases[0] = one->handle;
		else if (!strcmp(one->name, "k_gs_base"))
			bases[1] = one->handle;
	}
	g_array_free(registers, 1);
	value = g_byte_array_new();
}

static uint64_t find_area(void)
{
	uint64_t area = 0;

	for (int i = 0; i < 2 && bases[i] && !(area >> KERNELS); i++) {
		g_byte_array_set_size(value, 0);
		qemu_plugin_read_register(bases[i], value);
		memcpy(&area, value->data, value->length < sizeof(area) ? value->length : sizeof(area));
	}
	return area;
}

void begin_block(unsigned int vcpu)
{
	if (!qemu_plugin_get_registers) {
		executing = vcpu;
		return;
	}
	if (!value)
		find_bases();
	current = find_area();
	for (executing = 0; executing < known && areas[executing] != current; executing++)
		;
	if (executing == known && known < CPUS)
		areas[known++] = current;
}

bool tells_cpus(void)
{
	return !qemu_plugin_get_registers || (bases[0] && bases[1]);
}

unsigned int executing_cpu(void)
{
	return executing;
}

void forget_others(void)
{
	if (!qemu_plugin_get_registers)
		return;
	areas[0] = current;
	known = 1;
	executing = 0;
}
