// SPDX-License-Identifier: GPL-2.0-only
// A plugin of QEMU's TCG that counts each executed instruction between two readings of a program's clock.
//
//   -plugin file=count.so,out=FILE[,detail=on][,stacks=on][,order=on][,together=ADDRESS[,landmarks=FILE]]
//          [,l1i=SIZE:WAYS:LINE,l1d=...,l2=...,itlb=...,dtlb=...]
//   -plugin file=count.so,out=FILE,classes=on
//
// The program says where by marks (images/guest/region.h). Until it arms the counting nothing is counted, and nothing
// costs time but a look at each new translation. While it counts, QEMU executes other translations, which it keeps:
// calls that are measured again and again are translated once. Those do not jump to each other directly, so where much
// is executed, and in a QEMU that cannot have them, arming and disarming make it translate everything anew. With
// detail, a guest goes on counting once it has been armed.
// With classes, only these are counted (see classes.h), in every translation and at any time: an addition for one
// instruction in ten. Arming costs nothing then.
// An instruction is its virtual address and its bytes, for probes patch code. Those below the address (in hex) are
// counted together, as one at 0 without bytes: programs that run one after the other have code at the same addresses.
//
// With landmarks (stacks.h), the stacks are those of whole programs, which are the stack without frames at address 0.
//
// FILE, written whenever a region is kept, so that it is complete though guests are killed. Regions that were added before
// are in its sums, so that the file has as many lines as there is code, however often it was executed:
//   region TOTAL ENTRIES
//   ADDRESS BYTES COUNT LOADS STORES TAKEN     ENTRIES times: numbers are decimal but the address and the bytes; the
//                                              loads and stores are 0 without detail. TAKEN is how often execution
//                                              did not go on behind the instruction: the host knows which ones are
//                                              branches, and which ones repeat themselves (rep stos).
//   stack COUNT ADDRESS FRAME ...              with stacks, behind a region's entries: instructions of the block at the
//                                              address, and where each function that led to it was entered, in hex
//   order ADDRESS COUNT DEPTH ADDRESS BYTES    with order, which has stacks, behind them: each block as it was executed,
//                                              one after the other: its instructions, in how many calls, and its last one;
//                                              of the last region alone
//   cache NAME HITS MISSES                     with caches (see caches.h), five times behind a region's entries
//   missed ADDRESS BYTES L1I L1D-LOADS L1D-STORES L2 ITLB DTLB     each instruction that did
//   classes                                    with classes, in place of a region, and behind it for each class:
//   class COUNT NAME
//   error REASON                               nothing follows that could be used
//
// Memory and output are bounded. What the lab has cut off FILE makes room where the program arms the counting, and with
// landmarks stacks do. Exceptions that push a frame, and interrupts, are not among the stores. Caches are empty
// where the program arms the counting, and have what ran since.
#include "caches.h"
#include "classes.h"
#include "host.h"
#include "marks.h"
#include "output.h"
#include "physical.h"
#include "qemu_plugin.h"
#include "records.h"
#include "region.h"
#include "stacks.h"
#include "translations.h"

enum { SLOTS = 2 * RECORDS, BLOCKS = 1 << 17, BLOCK_SLOTS = 2 * BLOCKS, VCPUS = 256, LONGEST = 15 };
enum { LINE = 160, ADDRESS = 17, PAGE = 4096, LANDMARKS_SIZE = 1 << 22 };
// Instructions after which translations that jump to each other have made good what they cost: 0.1 s.
enum { WORTH_TRANSLATING = 1 << 22 };
enum { ORDER = 1 << 18 };	// most blocks of a region that are listed in their order
enum { ALL = RECORDS };		// index of the counter of all executed instructions, with landmarks

struct instruction {
	uint64_t address;
	const void *host;	// where the host had it when it was translated last; NULL where it is no memory
	uint8_t size, bytes[LONGEST];
};

struct executed {
	uint64_t in_kernel, in_user;
};

struct counts {
	uint64_t executed, loads, stores, taken;
};

struct block {
	uint64_t start, end, function;
	uint32_t last, size;
	enum ending ending;
	enum landmark landmark;
};

struct passed {
	const struct block *block;
	uint32_t size, depth;
};

static struct instruction instructions[RECORDS];
static uint32_t slots[SLOTS];			// one more than the index of the instruction; 0 is free
static uint64_t executed[RECORDS + 1];		// version 1
static qemu_plugin_u64 board;			// version 2
static struct counts counted[RECORDS], before[RECORDS];
static struct counts region[RECORDS], kept[RECORDS];	// the last one, and the sum of those that are to be written
static struct block blocks[BLOCKS];
static struct passed order[ORDER];
static size_t used_order;			// larger than the array if some are missing
static const struct block *previous[VCPUS];
static uint32_t block_slots[BLOCK_SLOTS];	// like slots
static uint32_t used, used_blocks, in_region;
static bool armed, apart, classed, detailed, stacked, ordered, landmarked, cached, is_counting, is_modelling, is_open,
	has_region;
static uint64_t together, seen, seen_together;	// counted on stacks until now
static uint64_t executed_apart;			// since the counting was armed
static uint32_t together_index = RECORDS;

static uint32_t index_of(const struct instruction *wanted)
{
	uint64_t hash = wanted->address;

	for (int i = 0; i < wanted->size; i++)
		hash = (hash ^ wanted->bytes[i]) * 0x100000001b3u;
	for (uint32_t at = (uint32_t)(hash ^ hash >> 32) % SLOTS;; at = (at + 1) % SLOTS) {
		const struct instruction *found;

		if (slots[at] == 0) {
			if (used == RECORDS)
				return RECORDS;
			instructions[used] = *wanted;
			slots[at] = ++used;
			return used - 1;
		}
		found = instructions + slots[at] - 1;
		if (found->address == wanted->address && found->size == wanted->size &&
		    !memcmp(found->bytes, wanted->bytes, wanted->size)) {
			instructions[slots[at] - 1].host = wanted->host;
			return slots[at] - 1;
		}
	}
}

static void read_instruction(const struct qemu_plugin_insn *insn, struct instruction *read)
{
	size_t size = qemu_plugin_insn_size(insn);

	read->address = qemu_plugin_insn_vaddr(insn);
	read->host = qemu_plugin_insn_haddr(insn);
	read->size = size < LONGEST ? (uint8_t)size : LONGEST;
	read_bytes(insn, read->bytes, read->size);
}

static uint64_t executions(uint32_t index)
{
	uint64_t sum = 0;

	if (!board.score)
		return executed[index];
	for (int vcpu = 0; vcpu < qemu_plugin_num_vcpus(); vcpu++)
		sum += ((uint64_t *)qemu_plugin_scoreboard_find(board.score, (unsigned int)vcpu))[index];
	return sum;
}

// Count what was executed since on the stack of the last block, and in programs.
static struct executed count_since(const struct block *last)
{
	uint64_t now = executions(ALL), user = together_index < RECORDS ? executions(together_index) : 0;
	struct executed since = {.in_user = user - seen_together};

	since.in_kernel = now - seen - since.in_user;
	if (is_open)
		count_landmark(last ? last->function : together, since.in_kernel, since.in_user);
	seen = now;
	seen_together = user;
	return since;
}

static void begin_region(void)
{
	for (uint32_t i = 0; i < used; i++) {
		before[i] = counted[i];
		before[i].executed = executions(i);
	}
	if (landmarked)
		count_since(NULL);
	// The block that has the mark is not counted on a stack, and with it the first reading of the clock.
	for (int i = 0; i < VCPUS && !landmarked; i++)
		previous[i] = NULL;
	begin_stacks();
	used_order = 0;
	if (cached)
		begin_misses(used);
	is_open = true;
}

static void end_region(void)
{
	for (uint32_t i = 0; i < used; i++) {
		region[i].executed = executions(i) - before[i].executed;
		region[i].loads = counted[i].loads - before[i].loads;
		region[i].stores = counted[i].stores - before[i].stores;
		region[i].taken = counted[i].taken - before[i].taken;
	}
	if (landmarked)
		count_since(previous[0]);
	end_stacks();
	if (cached)
		end_misses(used);
	in_region = used;
	has_region = is_open;
	is_open = false;
}

static void put_numbers(const uint64_t *numbers, size_t count)
{
	char line[LINE];

	for (size_t i = 0; i < count; i++)
		put(line, (size_t)snprintf(line, sizeof(line), " %lu", (unsigned long)numbers[i]));
	put("\n", 1);
}

static void put_instruction(uint32_t index)
{
	const struct instruction *one = instructions + index;
	char line[LINE];
	size_t size = (size_t)snprintf(line, LINE, "%lx ", (unsigned long)one->address);

	for (int i = 0; i < one->size; i++)
		size += (size_t)snprintf(line + size, LINE - size, "%02x", one->bytes[i]);
	put(line, size);
}

static void put_entry(uint32_t index)
{
	const struct counts *counts = kept + index;
	uint64_t numbers[] = {counts->executed, counts->loads, counts->stores, counts->taken};

	put_instruction(index);
	put_numbers(numbers, sizeof(numbers) / sizeof(*numbers));
}

static void put_misses(void)
{
	for (int cache = 0; cache < CACHES; cache++) {
		struct lookups lookups = kept_lookups((enum cache)cache);
		uint64_t numbers[] = {lookups.hits, lookups.misses};

		put("cache ", 6);
		put(cache_names[cache], strlen(cache_names[cache]));
		put_numbers(numbers, sizeof(numbers) / sizeof(*numbers));
	}
	for (uint32_t i = 0; i < in_region; i++) {
		const uint64_t *misses = misses_of(i);

		if (!misses)
			continue;
		put("missed ", 7);
		put_instruction(i);
		put_numbers(misses, MISSES);
	}
}

static void put_stack(uint64_t count, uint64_t address, const uint64_t *frames, size_t depth)
{
	char line[LINE];

	if (output_has_failed())
		return;
	if (!has_output_room(LINE + depth * ADDRESS))
		return report_error("more than 64 MiB of stacks");
	put(line, (size_t)snprintf(line, sizeof(line), "stack %lu %lx", (unsigned long)count, (unsigned long)address));
	for (size_t i = 0; i < depth; i++)
		put(line, (size_t)snprintf(line, sizeof(line), " %lx", (unsigned long)frames[i]));
	put("\n", 1);
}

static void put_order(void)
{
	char line[LINE];

	if (used_order > ORDER || !has_output_room(used_order * LINE))
		return report_error("more blocks in their order than there is room for");
	for (size_t i = 0; i < used_order; i++) {
		const struct passed *one = order + i;

		put(line, (size_t)snprintf(line, LINE, "order %lx %u %u ", (unsigned long)one->block->start, one->size, one->depth));
		put_instruction(one->block->last);
		put("\n", 1);
	}
}

static void write_classes(void)
{
	char line[LINE];

	if (!has_output_room((CLASSES + 1) * LINE))
		return report_error("more than 64 MiB of counts");
	put("classes\n", 8);
	for (int i = 0; i < CLASSES; i++)
		put(line, (size_t)snprintf(line, sizeof(line), "class %lu %s\n", (unsigned long)kept[i].executed, class_names[i]));
	flush_output();
}

static void chain_translations(void)
{
	apart = false;
	qemu_loglevel ^= QEMU_NOCHAIN;
	translate_anew();
}

static void forget_kept(void)
{
	memset(kept, 0, used * sizeof(*kept));
	forget_kept_stacks();
	if (cached)
		forget_kept_misses(used);
}

static void add_region(void)
{
	if (!has_region)
		return report_error("a region is to be kept, and none has ended");
	has_region = false;
	for (uint32_t i = 0; i < in_region; i++) {
		kept[i].executed += region[i].executed;
		kept[i].loads += region[i].loads;
		kept[i].stores += region[i].stores;
		kept[i].taken += region[i].taken;
	}
	keep_stacks();
	if (cached)
		keep_misses(in_region);
}

static void write_kept(void)
{
	uint64_t total = 0, entries = 0;
	char line[LINE];

	if (classed)
		return write_classes();
	for (uint32_t i = 0; i < in_region; i++) {
		total += kept[i].executed;
		entries += kept[i].executed != 0;
	}
	if (!has_output_room((entries + 1) * LINE * (cached ? 2 : 1)))
		return report_error("more than 64 MiB of counts");
	put(line, (size_t)snprintf(line, sizeof(line), "region %lu %lu\n", (unsigned long)total, (unsigned long)entries));
	for (uint32_t i = 0; i < in_region; i++)
		if (kept[i].executed)
			put_entry(i);
	if (cached)
		put_misses();
	if (stacks_are_full())
		return report_error("more stacks than there is room for");
	if (stacked)
		list_stacks(put_stack);
	if (ordered)
		put_order();
	flush_output();
	executed_apart += total;
	if (apart && executed_apart > WORTH_TRANSLATING)
		chain_translations();
}

static void pass_mark(unsigned int vcpu, void *mark)
{
	(void)vcpu;
	if ((long)mark == REGION_ARM)
		repeat_error();
	if (output_has_failed())
		return;
	switch ((long)mark) {
	case REGION_ARM:
	case REGION_DISARM:
		measure_output();
		is_open = has_region = false;
		is_counting = (long)mark == REGION_ARM;
		forget_kept();
		if (landmarked && is_counting)
			forget_stacks();
		is_modelling = cached && is_counting;
		if (is_modelling)
			empty_caches();
		// QEMU 7.2 keeps a pointer to the memory callbacks of an instruction whose helper does not return, and dies
		// when it has freed them ("qemu_plugin_vcpu_mem_cb: code should not be reached"): once there are some, they stay.
		if (classed || (armed && (detailed || (long)mark == REGION_ARM)))
			break;
		if (!armed && (long)mark == REGION_DISARM)
			break;
		armed = !armed;
		forget_tasks();
		for (int i = 0; i < VCPUS; i++)
			previous[i] = NULL;
		executed_apart = 0;
		if (apart)
			qemu_loglevel ^= QEMU_NOCHAIN;
		else
			translate_anew();
		break;
	case REGION_BEGIN:
		if (is_counting)
			begin_region();
		break;
	case REGION_END:
		if (is_counting)
			end_region();
		break;
	case REGION_ADD:
		if (is_counting)
			add_region();
		break;
	case REGION_KEEP:
		if (!is_counting)
			break;
		add_region();
		if (!output_has_failed())
			write_kept();
		forget_kept();
		break;
	}
}

// QEMU decodes an instruction that crosses into another page, and leaves it to the next block: until 8.1 (commit
// "plugins: Set final instruction count in plugin_gen_tb_end") it shows a plugin the bytes in front of the border as the
// last instruction. With those bytes it is never executed.
static bool is_cut_off(const struct block *block)
{
	return !board.score && executed[block->last] == 0;
}

static void leave_block(const struct block *block, uint64_t next)
{
	bool cut_off = is_cut_off(block);
	uint64_t end = cut_off ? instructions[block->last].address : block->end;

	if (end != next)
		counted[block->last].taken++;
	if (stacked && is_open) {
		if (ordered && used_order++ < ORDER)
			order[used_order - 1] = (struct passed){block, block->size - cut_off, (uint32_t)stack_depth()};
		count_on_stack(block->start, block->size - cut_off);
		follow(cut_off ? TRAPS : block->ending, end, next);
	}
}

static void leave_whole_block(const struct block *block, const struct block *next)
{
	struct executed since = count_since(block);
	bool cut_off = is_cut_off(block);
	// Where it did not come to its end, its last instruction has led nowhere.
	bool was_left = cut_off || since.in_kernel < block->size;

	follow_landmark(was_left ? TRAPS : block->ending, cut_off ? instructions[block->last].address : block->end,
			next->start, next->landmark, since.in_user);
}

static void pass_block(unsigned int vcpu, void *data)
{
	const struct block *block = data, **last = previous + vcpu % VCPUS;

	if (*last && landmarked)
		leave_whole_block(*last, block);
	else if (*last)
		leave_block(*last, block->start);
	*last = block;
}

static void fetch_instruction(unsigned int vcpu, void *data)
{
	const struct instruction *one = data;

	(void)vcpu;
	if (is_modelling && one->host && is_code_known())
		fetch((uint32_t)(one - instructions), one->address, find_code(one->host), one->size);
}

static void look_up_page(uint32_t index, qemu_plugin_meminfo_t info, uint64_t address, uint32_t size)
{
	const struct instruction *one = instructions + index;
	uint64_t physical;
	bool is_memory = find_data(info, address, &physical);

	if (is_memory && one->host && !is_code_known() && address / PAGE == one->address / PAGE)
		learn_code(one->host, physical);
	if (!is_code_known())
		return;
	translate(index, address);
	if (is_memory)
		access_data(index, address, physical, size, qemu_plugin_mem_is_store(info));
}

static void look_up_data(uint32_t index, qemu_plugin_meminfo_t info, uint64_t address)
{
	uint32_t size = 1u << qemu_plugin_mem_size_shift(info), left = PAGE - address % PAGE;

	look_up_page(index, info, address, size < left ? size : left);
	if (size > left)
		look_up_page(index, info, address + left, size - left);
}

// QEMU 7.2 mistakes reads for writes when asked for one of them: ask for both.
static void access_memory(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	struct counts *counts = data;

	(void)vcpu;
	if (is_modelling)
		look_up_data((uint32_t)(counts - counted), info, address);
	if (qemu_plugin_mem_is_store(info))
		counts->stores++;
	else
		counts->loads++;
}

static void access_in_switch(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	(void)vcpu;
	(void)data;
	see_switch(address, qemu_plugin_mem_is_store(info));
}

static void add_one(struct qemu_plugin_insn *insn, uint32_t index)
{
	qemu_plugin_u64 counter = {board.score, index * sizeof(uint64_t)};

	if (board.score)
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64, counter, 1);
	else
		qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, executed + index, 1);
}

static void count_executions(struct qemu_plugin_insn *insn, uint32_t index)
{
	add_one(insn, index);
	if (landmarked)
		add_one(insn, ALL);
	if (landmarked && is_in_switch(instructions[index].address))
		qemu_plugin_register_vcpu_mem_cb(insn, access_in_switch, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
	if (cached)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, fetch_instruction, QEMU_PLUGIN_CB_NO_REGS,
						       instructions + index);
	if (detailed)
		qemu_plugin_register_vcpu_mem_cb(insn, access_memory, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 counted + index);
}

static bool is_same_block(const struct block *one, const struct block *other)
{
	return one->start == other->start && one->end == other->end && one->last == other->last &&
	       one->size == other->size && one->ending == other->ending;
}

// QEMU translates a block again whenever the counting is armed: it keeps its place. NULL where there is no room.
static struct block *place_of(const struct block *wanted)
{
	uint64_t hash = (wanted->start ^ (uint64_t)wanted->last << 32 ^ wanted->size) * 0x9e3779b97f4a7c15u;

	for (uint32_t at = (uint32_t)(hash >> 32) % BLOCK_SLOTS;; at = (at + 1) % BLOCK_SLOTS) {
		if (block_slots[at] == 0) {
			if (used_blocks == BLOCKS)
				return NULL;
			blocks[used_blocks] = *wanted;
			block_slots[at] = ++used_blocks;
		}
		if (is_same_block(blocks + block_slots[at] - 1, wanted))
			return blocks + block_slots[at] - 1;
	}
}

static void note_block(struct qemu_plugin_tb *tb, const struct instruction *last, uint32_t index, uint32_t size)
{
	struct block wanted = {.start = qemu_plugin_tb_vaddr(tb), .end = last->address + last->size, .last = index,
			       .size = size, .ending = ending_of(last->bytes, last->size)};
	struct block *block;

	wanted.landmark = find_landmark(wanted.start, &wanted.function);
	block = place_of(&wanted);
	if (!block)
		return report_error("more blocks of code than there is room for");
	qemu_plugin_register_vcpu_tb_exec_cb(tb, pass_block, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void look_for_classes(struct qemu_plugin_tb *tb)
{
	struct instruction read = {0};

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		enum class found;
		long mark;

		read_instruction(insn, &read);
		mark = mark_in(read.bytes, read.size);
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, pass_mark, QEMU_PLUGIN_CB_NO_REGS, (void *)mark);
		found = mark ? PLAIN : class_of(read.bytes, read.size);
		if (found != PLAIN)
			count_executions(insn, found);
	}
}

static void look_at_translation(struct qemu_plugin_tb *tb)
{
	static const struct instruction all_below;
	struct instruction read = {0};
	uint32_t index = RECORDS, size = 0;

	if (classed)
		return look_for_classes(tb);
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		long mark;

		if (!armed && qemu_plugin_insn_size(insn) != MARK_SIZE)
			continue;
		read_instruction(insn, &read);
		mark = mark_in(read.bytes, read.size);
		if (mark && (armed || mark == REGION_ARM))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, pass_mark, QEMU_PLUGIN_CB_NO_REGS, (void *)mark);
		if (!armed || mark)
			continue;
		index = index_of(read.address < together ? &all_below : &read);
		if (index == RECORDS)
			return report_error("more instructions than there is room for");
		if (read.address < together)
			together_index = index;
		count_executions(insn, index);
		size++;
	}
	// Programs have more blocks than there is room for.
	if (armed && index != RECORDS && (detailed || (stacked && !landmarked) || read.address >= together))
		note_block(tb, &read, index, size);
}

static bool find_landmarks(const char *path)
{
	static char text[LANDMARKS_SIZE + 1];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	long size = 0, got = 0;

	do {
		size += got;
		got = read(file, text + size, (size_t)(LANDMARKS_SIZE - size));
	} while (got > 0);
	return !got && size < LANDMARKS_SIZE && read_landmarks(text);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	bool is_writable = false;

	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			is_writable = open_output(argv[i] + 4);
		else if (!strcmp(argv[i], "classes=on"))
			classed = true;
		else if (!strcmp(argv[i], "detail=on"))
			detailed = true;
		else if (!strcmp(argv[i], "stacks=on"))
			stacked = true;
		else if (!strcmp(argv[i], "order=on"))
			ordered = stacked = true;
		else if (!strncmp(argv[i], "together=", 9))
			together = strtoull(argv[i] + 9, NULL, 16);
		else if (!strncmp(argv[i], "landmarks=", 10) && find_landmarks(argv[i] + 10))
			landmarked = stacked = true;
		else if (add_cache(argv[i]))
			cached = detailed = true;
		else
			return 1;
	}
	if (!is_writable || (cached && !has_caches()) || (classed && (detailed || stacked)) || (ordered && landmarked))
		return 1;
	used = classed ? CLASSES : 0;
	// Whole systems, which have programs counted together, execute much.
	apart = &qemu_loglevel && !detailed && !together;
	if (qemu_plugin_scoreboard_new)
		board.score = qemu_plugin_scoreboard_new((RECORDS + 1) * sizeof(uint64_t));
	look_at_translations(id, info, look_at_translation);
	return 0;
}
