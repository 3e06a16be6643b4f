// SPDX-License-Identifier: GPL-2.0-only
// Stands in for QEMU around the counting plugin: translates blocks of code and executes them, as its input says.
//
// Arguments: the plugin's. Input, one line each:
//   ADDRESS BYTES ...     a block of instructions, one behind the other, is translated unless it is known already, and
//                         executed; numbers in hex. One whose bytes begin with - is shown and not executed, as QEMU 7.2
//                         shows the beginning of an instruction that crosses into another page. Behind BYTES, >ADDRESS
//                         is a store, and <ADDRESS a load.
// Blocks are translated anew once the plugin has asked for that. With KEEPS_APART, this is a QEMU in which it can choose
// between two translations of each. Output: how many blocks were translated.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

enum { LENGTH = 16, KNOWN = 1 << 16, TEXT = 512, COUNTERS = 2 };

struct callback {
	qemu_plugin_exec_cb *call;
	void *data;
};

struct qemu_plugin_insn {
	uint64_t address;
	size_t size;
	uint8_t bytes[LENGTH];
	int is_left_out;
	char access;
	uint64_t accessed;
	uint64_t *counters[COUNTERS];
	struct callback executed;
	qemu_plugin_mem_cb *access_memory;
	void *data;
};

struct qemu_plugin_tb {
	char text[TEXT];
	size_t size;
	struct qemu_plugin_insn instructions[LENGTH];
	struct callback executed;
};

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

static struct qemu_plugin_tb *usual[KNOWN], *others[KNOWN];
static unsigned int translations;
static qemu_plugin_tb_cb *translated;
static qemu_plugin_simple_cb *restarted;

void qemu_plugin_reset(qemu_plugin_id_t id, qemu_plugin_simple_cb *done)
{
	(void)id;
	restarted = done;
}

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_tb_cb *called)
{
	(void)id;
	translated = called;
}

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_plugin_exec_cb *executed,
					  enum qemu_plugin_cb_flags flags, void *data)
{
	(void)flags;
	tb->executed = (struct callback){executed, data};
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_exec_cb *executed,
					    enum qemu_plugin_cb_flags flags, void *data)
{
	(void)flags;
	insn->executed = (struct callback){executed, data};
}

void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, enum qemu_plugin_op op, void *counter,
						uint64_t number)
{
	(void)op;
	(void)number;
	insn->counters[insn->counters[0] != NULL] = counter;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_mem_cb *accessed,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *data)
{
	(void)flags;
	(void)rw;
	insn->access_memory = accessed;
	insn->data = data;
}

bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info)
{
	return info;
}

unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info)
{
	return info;
}

struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address)
{
	(void)info;
	(void)address;
	return NULL;
}

bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *data)
{
	return data == NULL;
}

uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *data)
{
	(void)data;
	return 0;
}

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb)
{
	return tb->size;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index)
{
	return (struct qemu_plugin_insn *)tb->instructions + index;
}

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb)
{
	return tb->instructions[0].address;
}

uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn)
{
	return insn->address;
}

size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn)
{
	return insn->size;
}

void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn)
{
	return (void *)insn->bytes;
}

const void *qemu_plugin_insn_data_1(const struct qemu_plugin_insn *insn)
{
	return insn->bytes;
}

static void call(struct callback callback)
{
	if (callback.call)
		callback.call(0, callback.data);
}

static struct qemu_plugin_tb *read_block(const char *text)
{
	struct qemu_plugin_tb *tb = calloc(1, sizeof(*tb));
	char *at;
	uint64_t address = strtoull(text, &at, 16);

	snprintf(tb->text, sizeof(tb->text), "%s", text);
	while (*at == ' ') {
		struct qemu_plugin_insn *one = tb->instructions + tb->size++;

		one->address = address;
		one->is_left_out = at[1] == '-';
		for (at += 1 + one->is_left_out; *at > ' ' && *at != '<' && *at != '>'; at += 2)
			sscanf(at, "%2hhx", one->bytes + one->size++);
		if (*at > ' ') {
			one->access = *at;
			one->accessed = strtoull(at + 1, &at, 16);
		}
		address += one->size;
	}
	return tb;
}

#ifdef KEEPS_APART
int qemu_loglevel;

static struct qemu_plugin_tb **known(void)
{
	return qemu_loglevel & QEMU_NOCHAIN ? others : usual;
}
#else
static struct qemu_plugin_tb **known(void)
{
	return usual;
}
#endif

// A block that another one takes the place of is translated again, as QEMU may do at any time.
static struct qemu_plugin_tb *translate(const char *text)
{
	struct qemu_plugin_tb **place = known() + (strtoull(text, NULL, 16) * 0x9e3779b97f4a7c15u >> 32) % KNOWN;

	if (*place && !strcmp((*place)->text, text))
		return *place;
	free(*place);
	*place = read_block(text);
	translated(0, *place);
	translations++;
	return *place;
}

static void execute(const struct qemu_plugin_tb *tb)
{
	call(tb->executed);
	for (size_t i = 0; i < tb->size; i++) {
		if (tb->instructions[i].is_left_out)
			continue;
		call(tb->instructions[i].executed);
		for (size_t at = 0; at < COUNTERS && tb->instructions[i].counters[at]; at++)
			++*tb->instructions[i].counters[at];
		if (tb->instructions[i].access && tb->instructions[i].access_memory)
			tb->instructions[i].access_memory(0, tb->instructions[i].access == '>', tb->instructions[i].accessed,
							  tb->instructions[i].data);
	}
}

static void forget(struct qemu_plugin_tb **blocks)
{
	for (size_t i = 0; i < KNOWN; i++) {
		free(blocks[i]);
		blocks[i] = NULL;
	}
}

static void start_again(void)
{
	qemu_plugin_simple_cb *done = restarted;

	if (!done)
		return;
	restarted = NULL;
	forget(usual);
	forget(others);
	done(0);
}

int main(int argc, char **argv)
{
	static const qemu_info_t info = {"i386", {0, 1}};
	static char line[TEXT];

	if (qemu_plugin_install(0, &info, argc - 1, argv + 1))
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		execute(translate(line));
		start_again();
	}
	printf("%u\n", translations);
	return 0;
}
