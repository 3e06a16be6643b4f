// SPDX-License-Identifier: GPL-2.0-only
// See map_trial.h.
#include "lists.h"
#include "map_trial.h"

enum { MOST_MAPS = 512, MOST_PROGRAMS = 512, MOST_OF_PROGRAM = 64, MOST_SLOTS = 1 << 20, PAGE = 4096 };
enum { TAKEN = 16, MEMORY = 32 << 20 };
enum { RING_HEADER = 8, RING_LENGTH = (1 << 30) - 1, ROUNDED = 7 };	// include/uapi/linux/bpf.h: busy and discarded bits

struct watched {
	struct map_info info;
	int fd;
	uint64_t used, each, produced;
	uint32_t is_tried, taken, is_short;
	const char *untried;		// why
	char *walked;			// room for two keys
	char *keys;			// those taken out, and of an LRU map all
	void *value;
	uint64_t *digests;
};

static struct watched maps[MOST_MAPS];
static uint32_t map_count, programs[MOST_PROGRAMS], program_count;
static uint64_t memory = MEMORY;
static const char *unwatched;		// why a map or a program is not among them

static long element(int command, int map, const void *key, const void *value)
{
	union bpf_request request = {.element = {map, (unsigned long)key, (unsigned long)value, 0}};

	return bpf(command, &request, sizeof(request.element));
}

// Room of a map's, unless the trial has no memory for it.
static void *room_in(struct watched *map, uint64_t size)
{
	void *room = size <= memory ? room_for(size + 1) : NULL;

	if (!room || is_error(room)) {
		map->untried = "memory";
		return NULL;
	}
	memory -= size;
	return room;
}

// What the kernel answers to a request that may find nothing.
static void expect_none(struct watched *map, long error)
{
	if (error && error != -E_NOENT)
		map->untried = "refused";
}

static uint32_t type_of(const struct watched *map)
{
	return map->info.type;
}

static int has_keys(const struct watched *map)
{
	return type_of(map) == BPF_MAP_TYPE_HASH || type_of(map) == BPF_MAP_TYPE_PERCPU_HASH ||
	       type_of(map) == BPF_MAP_TYPE_LRU_HASH || type_of(map) == BPF_MAP_TYPE_LRU_PERCPU_HASH ||
	       type_of(map) == BPF_MAP_TYPE_LPM_TRIE;
}

static int is_lru(const struct watched *map)
{
	return type_of(map) == BPF_MAP_TYPE_LRU_HASH || type_of(map) == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

static int is_queue(const struct watched *map)
{
	return type_of(map) == BPF_MAP_TYPE_QUEUE || type_of(map) == BPF_MAP_TYPE_STACK;
}

// --- which maps --------------------------------------------------------------------------------------

static void watch_map(uint32_t id);

static void watch_programs_in(struct watched *map)
{
	for (uint32_t slot = 0; slot < map->info.entries && slot < MOST_SLOTS; slot++) {
		uint32_t id;
		long error = element(BPF_MAP_LOOKUP_ELEM, map->fd, &slot, &id);
		int program;

		expect_none(map, error);
		if (error)
			continue;
		program = program_by_id(id);
		if (program < 0) {
			expect_none(map, program);
			continue;
		}
		watch_maps(program);
		sys1(SYS_close, program);
	}
}

static char *walked_key(const struct watched *map, uint32_t number)
{
	return map->walked + (size_t)(number % 2) * map->info.key_size;
}

// Behind so many keys; 0, or a negative errno.
static long walk(const struct watched *map, uint32_t number)
{
	return element(BPF_MAP_GET_NEXT_KEY, map->fd, number ? walked_key(map, number) : NULL,
		       walked_key(map, number + 1));
}

static int can_walk(struct watched *map)
{
	if (!map->walked)
		map->walked = room_in(map, 2 * (uint64_t)map->info.key_size);
	return map->walked != NULL;
}

static void watch_maps_in(struct watched *map)
{
	long error = 0;
	uint32_t id;

	if (!can_walk(map))
		return;
	for (uint32_t i = 0; i < map->info.entries && i < MOST_SLOTS && !(error = walk(map, i)); i++) {
		long missing = element(BPF_MAP_LOOKUP_ELEM, map->fd, walked_key(map, i + 1), &id);

		expect_none(map, missing);
		if (!missing)
			watch_map(id);
	}
	expect_none(map, error);
}

static int has_others(const struct watched *map)
{
	return type_of(map) == BPF_MAP_TYPE_PROG_ARRAY || type_of(map) == BPF_MAP_TYPE_ARRAY_OF_MAPS ||
	       type_of(map) == BPF_MAP_TYPE_HASH_OF_MAPS;
}

static void watch_map(uint32_t id)
{
	union bpf_request opening = {.number = {.id = id}}, request = {0};
	struct watched *map = &maps[map_count];

	for (uint32_t i = 0; i < map_count; i++)
		if (maps[i].info.id == id)
			return;
	if (map_count == MOST_MAPS) {
		unwatched = "maps";
		return;
	}
	map->fd = (int)bpf(BPF_MAP_GET_FD_BY_ID, &opening, sizeof(opening.number));
	if (map->fd == -E_NOENT)
		return;
	request.info.fd = map->fd;
	request.info.size = sizeof(map->info);
	request.info.to = (unsigned long)&map->info;
	if (map->fd < 0 || bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info))) {
		unwatched = "unopened";
		return;
	}
	map->info.name[sizeof(map->info.name) - 1] = 0;
	map_count++;
	if (has_others(map) && map->info.entries > MOST_SLOTS)
		map->untried = "slots";
	else if (type_of(map) == BPF_MAP_TYPE_PROG_ARRAY)
		watch_programs_in(map);
	else if (has_others(map))
		watch_maps_in(map);
}

long watch_maps(int program)
{
	uint32_t used[MOST_OF_PROGRAM];
	struct program_info info = {.map_count = MOST_OF_PROGRAM, .maps = (unsigned long)used};
	union bpf_request request = {.info = {program, sizeof(info), (unsigned long)&info}};
	long error = bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info));

	if (error)
		return error;
	for (uint32_t i = 0; i < program_count; i++)
		if (programs[i] == info.id)
			return 0;
	if (program_count == MOST_PROGRAMS) {
		unwatched = "programs";
		return 0;
	}
	programs[program_count++] = info.id;
	if (info.map_count > MOST_OF_PROGRAM)
		unwatched = "maps";
	for (uint32_t i = 0; i < info.map_count && i < MOST_OF_PROGRAM; i++)
		watch_map(used[i]);
	return 0;
}

// --- maps with keys ----------------------------------------------------------------------------------

static int equal(const char *a, const char *b, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

static char *kept_key(const struct watched *map, uint32_t number)
{
	return map->keys + (size_t)number * map->info.key_size;
}

// The keys, and of those that were taken out how many are there again.
static uint32_t keys_in(struct watched *map, uint32_t *again)
{
	uint32_t count = 0;
	long error = 0;

	// One key may go while the next is asked for; then it begins anew.
	while (count <= map->info.entries && !(error = walk(map, count))) {
		count++;
		for (uint32_t i = 0; again && i < map->taken; i++)
			*again += equal(kept_key(map, i), walked_key(map, count), map->info.key_size);
	}
	expect_none(map, error);
	return count;
}

static void take_keys(struct watched *map)
{
	long error = 0;

	map->is_short = map->used >= map->info.entries;
	if (!map->is_short)
		return;
	map->keys = room_in(map, TAKEN * (uint64_t)map->info.key_size);
	if (!map->keys)
		return;
	while (map->taken < TAKEN &&
	       !(error = element(BPF_MAP_GET_NEXT_KEY, map->fd, NULL, kept_key(map, map->taken))) &&
	       !(error = element(BPF_MAP_DELETE_ELEM, map->fd, kept_key(map, map->taken), NULL)))
		map->taken++;
	expect_none(map, error);
}

// An LRU map makes room itself, by age, at once for many keys: which of all its keys are gone tells that.
static void remember_keys(struct watched *map)
{
	const char *key = NULL;

	map->keys = room_in(map, map->used * map->info.key_size);
	while (map->keys && map->taken < map->used &&
	       !element(BPF_MAP_GET_NEXT_KEY, map->fd, key, kept_key(map, map->taken)))
		key = kept_key(map, map->taken++);
}

// One of a single key is a variable, as bpftrace has them, and hits behave otherwise without its value.
static void make_room_for_keys(struct watched *map)
{
	if (!can_walk(map))
		return;
	map->used = keys_in(map, NULL);
	if (map->untried || map->info.entries == 1)
		return;
	if (is_lru(map))
		remember_keys(map);
	else
		take_keys(map);
}

// Of an LRU map those that are gone. A value is not asked for: the kernel finds the key, and cannot write to NULL (EFAULT).
static uint32_t gone_keys(const struct watched *map)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < map->taken; i++)
		count += element(BPF_MAP_LOOKUP_ELEM, map->fd, kept_key(map, i), NULL) == -E_NOENT;
	return count;
}

static uint64_t new_keys(struct watched *map)
{
	uint32_t again = 0, gone = map->taken, now = keys_in(map, is_lru(map) ? NULL : &again);
	uint64_t kept;

	if (is_lru(map)) {
		gone = gone_keys(map);
		// The kernel evicts none while half the map is free: a program has deleted them.
		map->is_short = gone && 2 * (map->used > now ? map->used : now) >= map->info.entries;
	}
	kept = map->used - gone + again;
	return now > kept ? now - kept : 0;
}

// --- stacks ------------------------------------------------------------------------------------------

// As stack_map_alloc() of kernel/bpf/stackmap.c has them.
static uint64_t buckets_of(const struct watched *map)
{
	uint64_t buckets = 1;

	while (buckets < map->info.entries)
		buckets *= 2;
	return buckets;
}

// Of a bucket's stack; 0 where the bucket is empty.
static uint64_t stack_in(struct watched *map, uint32_t bucket)
{
	const uint64_t *stack = map->value;
	uint64_t digest = 14695981039346656037ULL;	// FNV-1a
	long error;

	memset(map->value, 0, map->info.value_size);
	error = element(BPF_MAP_LOOKUP_ELEM, map->fd, &bucket, map->value);
	expect_none(map, error);
	if (error)
		return 0;
	for (size_t i = 0; i < map->info.value_size / sizeof(*stack); i++)
		digest = (digest ^ stack[i]) * 1099511628211ULL;
	return digest;
}

static void take_stacks(struct watched *map)
{
	map->value = room_in(map, map->info.value_size);
	map->digests = room_in(map, buckets_of(map) * sizeof(uint64_t));
	if (!map->value || !map->digests)
		return;
	for (uint64_t at = 0; at < buckets_of(map) && !map->untried; at++) {
		const uint32_t bucket = at;

		map->digests[bucket] = stack_in(map, bucket);
		map->used += map->digests[bucket] != 0;
		if (map->digests[bucket])
			expect_none(map, element(BPF_MAP_DELETE_ELEM, map->fd, &bucket, NULL));
	}
	map->is_short = 1;	// two stacks may share a bucket of any map
}

static uint64_t other_stacks(struct watched *map)
{
	uint64_t count = 0;

	for (uint64_t bucket = 0; bucket < buckets_of(map); bucket++) {
		const uint64_t digest = map->digests[bucket] ? stack_in(map, bucket) : 0;

		count += digest && digest != map->digests[bucket];
	}
	return count;
}

// --- queues and stacks -------------------------------------------------------------------------------

static uint64_t take_elements(struct watched *map)
{
	uint64_t count = 0;
	long error = 0;

	while (count <= map->info.entries &&
	       !(error = element(BPF_MAP_LOOKUP_AND_DELETE_ELEM, map->fd, NULL, map->value)))
		count++;
	expect_none(map, error);
	return count;
}

static void empty_queue(struct watched *map)
{
	map->value = room_in(map, map->info.value_size);
	if (map->value)
		map->is_short = (map->used = take_elements(map)) >= map->info.entries;
}

// --- rings -------------------------------------------------------------------------------------------

static volatile unsigned long *page_of(const struct watched *map, size_t offset, int protection)
{
	void *page = map_memory(map->fd, PAGE, offset, protection, MAP_SHARED);

	return is_error(page) ? NULL : page;
}

static uint64_t produced(const struct watched *map)
{
	const volatile unsigned long *page = page_of(map, PAGE, PROT_READ);

	return page ? *page : 0;
}

static void drain_ring(struct watched *map)
{
	volatile unsigned long *consumed = page_of(map, 0, PROT_READ | PROT_WRITE);
	const size_t size = map->info.entries;
	const char *data = map_memory(map->fd, 2 * size, 2 * PAGE, PROT_READ, MAP_SHARED);
	uint64_t largest = 0;

	map->produced = produced(map);
	if (!consumed || is_error(data)) {
		map->untried = "memory";
		return;
	}
	map->used = map->produced - *consumed;
	for (uint64_t at = *consumed; at < map->produced;) {
		const uint64_t record = *(const volatile uint32_t *)(data + (at & (size - 1))) & RING_LENGTH;
		const uint64_t whole = (record + RING_HEADER + ROUNDED) & ~(uint64_t)ROUNDED;

		largest = whole > largest ? whole : largest;
		at += whole;
	}
	map->each = largest;
	map->is_short = largest && size - map->used < largest;
	if (map->is_short)
		*consumed = map->produced;
}

// --- what user space puts in -------------------------------------------------------------------------

static int has_programs(const struct watched *map)
{
	uint32_t id;

	for (uint32_t slot = 0; slot < map->info.entries; slot++)
		if (!element(BPF_MAP_LOOKUP_ELEM, map->fd, &slot, &id))
			return 1;
	return 0;
}

// -------------------------------------------------------------------------------------------------------

static int make_room_in(struct watched *map, int attended)
{
	map->each = 1;
	if (map->untried)
		return 1;
	if (has_keys(map))
		make_room_for_keys(map);
	else if (type_of(map) == BPF_MAP_TYPE_STACK_TRACE)
		take_stacks(map);
	else if (is_queue(map))
		empty_queue(map);
	else if (attended)
		return 0;
	else if (type_of(map) == BPF_MAP_TYPE_RINGBUF)
		drain_ring(map);
	else if (type_of(map) == BPF_MAP_TYPE_PROG_ARRAY)
		map->is_short = !has_programs(map);
	else if (type_of(map) == BPF_MAP_TYPE_USER_RINGBUF)
		map->is_short = !produced(map);
	else
		return 0;
	return 1;
}

int make_room(int attended)
{
	int tried = unwatched != NULL;

	for (uint32_t i = 0; i < map_count; i++)
		tried += maps[i].is_tried = make_room_in(&maps[i], attended);
	return tried;
}

static uint64_t new_in(struct watched *map)
{
	if (has_keys(map))
		return new_keys(map);
	if (type_of(map) == BPF_MAP_TYPE_STACK_TRACE)
		return other_stacks(map);
	if (is_queue(map))
		return take_elements(map);
	if (type_of(map) == BPF_MAP_TYPE_RINGBUF)
		return produced(map) - map->produced;
	return map->is_short;
}

void show_use(int file, const struct map_use *use)
{
	const uint64_t numbers[] = {use->info.type, use->info.id, use->info.entries, use->used, use->each};

	for (size_t number = 0; number < sizeof(numbers) / sizeof(numbers[0]); number++) {
		print_number(file, numbers[number]);
		print(file, " ");
	}
	print(file, use->untried ?: use->is_short ? "1" : "0");
	print(file, " ");
	print_number(file, use->came);
	print(file, " ");
	print(file, *use->info.name ? use->info.name : "-");
	print(file, "\n");
}

void show_trial(int file)
{
	const struct map_use absent = {.untried = unwatched};

	for (uint32_t i = 0; i < map_count; i++)
		if (maps[i].is_tried) {
			const uint64_t came = maps[i].untried ? 0 : new_in(&maps[i]);
			const struct map_use use = {
				.info = maps[i].info, .used = maps[i].used, .each = maps[i].each, .came = came,
				.is_short = (int)maps[i].is_short, .untried = maps[i].untried,
			};

			show_use(file, &use);
		}
	if (unwatched)
		show_use(file, &absent);
}
