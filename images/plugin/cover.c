// SPDX-License-Identifier: GPL-2.0-only
// A plugin of QEMU's TCG that counts each executed instruction in ranges of addresses, as long as the guest runs.
//
//   -plugin file=cover.so,out=FILE,code=START-END[,code=START-END]...	in hex; END is behind the range
//
// FILE has two numbers of 64 bits for each instruction that was translated: its address, and how often it was executed.
// It is mapped, so what a guest has executed is there though it is killed, and can be read while it runs. Behind the last
// instruction it is 0; without a 0 at its end, there was not room for all.
//
// Other code costs nothing but a look at each new translation. A callback counts, for in QEMU since 9.0 there are no
// inline counters in memory of the plugin's, and those of 7.2 lose counts where CPUs have threads of their own.
#include "host.h"
#include "qemu_plugin.h"
#include "translations.h"

enum { RECORDS = 1 << 18, SLOTS = 2 * RECORDS, RANGES = 1024, HEX = 16 };

struct executed {
	uint64_t address, count;
};

static struct executed *table;
static uint32_t slots[SLOTS], used;		// a slot is one more than the index in the table; 0 is free
static uint64_t starts[RANGES], ends[RANGES];
static int ranges;
static bool lock;				// CPUs with threads of their own translate at the same time

static bool is_wanted(uint64_t address)
{
	for (int i = 0; i < ranges; i++)
		if (starts[i] <= address && address < ends[i])
			return true;
	return false;
}

// NULL where there is no room.
static struct executed *place_of(uint64_t address)
{
	uint64_t hash = address * 0x9e3779b97f4a7c15u;

	for (uint32_t at = (uint32_t)(hash >> 32) % SLOTS;; at = (at + 1) % SLOTS) {
		if (slots[at] == 0) {
			if (used == RECORDS)
				return NULL;
			table[used].address = address;
			slots[at] = ++used;
		}
		if (table[slots[at] - 1].address == address)
			return table + slots[at] - 1;
	}
}

static void count(unsigned int vcpu, void *executed)
{
	(void)vcpu;
	__atomic_fetch_add(&((struct executed *)executed)->count, 1, __ATOMIC_RELAXED);
}

static void look_at_translation(struct qemu_plugin_tb *tb)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		struct executed *place;

		if (!is_wanted(qemu_plugin_insn_vaddr(insn)))
			continue;
		while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
			;
		place = place_of(qemu_plugin_insn_vaddr(insn));
		__atomic_clear(&lock, __ATOMIC_RELEASE);
		if (place)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, count, QEMU_PLUGIN_CB_NO_REGS, place);
	}
}

static bool add_range(const char *text)
{
	char *behind;

	if (ranges == RANGES)
		return false;
	starts[ranges] = strtoull(text, &behind, HEX);
	ends[ranges] = *behind == '-' ? strtoull(behind + 1, &behind, HEX) : 0;
	return !*behind && starts[ranges] < ends[ranges] && ++ranges;
}

// Its blocks are had before the guest runs: a full disk would end QEMU when it writes to one.
static bool map_table(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (file < 0 || posix_fallocate(file, 0, RECORDS * sizeof(*table)))
		return false;
	table = mmap(NULL, RECORDS * sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	return table != MAP_FAILED;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (!(!strncmp(argv[i], "code=", 5) ? add_range(argv[i] + 5) :
		      !strncmp(argv[i], "out=", 4) && map_table(argv[i] + 4)))
			return 1;
	if (!table)
		return 1;
	look_at_translations(id, info, look_at_translation);
	return 0;
}
