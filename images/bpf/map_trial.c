// SPDX-License-Identifier: GPL-2.0-only
// See map_trial.h.
#include "map_trial.h"

enum { MOST_MAPS = 64, MOST_PROGRAMS = 64, MOST_SLOTS = 1024, MOST_CPUS = 64, PAGE = 4096 };
enum { TAKEN = 16, LARGEST_KEY = 512, LARGEST_ELEMENT = 4096, MOST_BUCKETS = 1 << 16, LARGEST_STACK = 1024 };
enum { RING_HEADER = 8, RING_LENGTH = (1 << 30) - 1, ROUNDED = 7 };	// include/uapi/linux/bpf.h: busy and discarded bits
enum { EVENT_PAGES = 9, HEAD = 1024 };	// data_head of struct perf_event_mmap_page

struct watched {
	struct map_info info;
	int fd, events;
	uint64_t used, each, produced;
	uint32_t is_tried, taken, is_short;
	char keys[TAKEN][LARGEST_KEY];
	const volatile uint64_t *heads[MOST_CPUS];
	uint64_t *digests;
};

static struct watched maps[MOST_MAPS];
static uint32_t map_count, programs[MOST_PROGRAMS], program_count;
static char keys[2][LARGEST_KEY];

static long element(int command, int map, const void *key, const void *value)
{
	union bpf_request request = {.element = {map, (unsigned long)key, (unsigned long)value, 0}};

	return bpf(command, &request, sizeof(request.element));
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

static void watch_programs_in(const struct watched *map)
{
	for (uint32_t slot = 0; slot < map->info.entries && slot < MOST_SLOTS; slot++) {
		uint32_t id;
		int program;

		if (element(BPF_MAP_LOOKUP_ELEM, map->fd, &slot, &id))
			continue;
		program = program_by_id(id);
		if (program >= 0)
			watch_maps(program);
		sys1(SYS_close, program);
	}
}

static void watch_maps_in(const struct watched *map)
{
	char names[2][LARGEST_KEY];
	uint32_t id;

	if (map->info.key_size > LARGEST_KEY)
		return;
	for (uint32_t i = 0; i < MOST_SLOTS; i++) {
		if (element(BPF_MAP_GET_NEXT_KEY, map->fd, i ? names[i % 2] : NULL, names[(i + 1) % 2]))
			return;
		if (!element(BPF_MAP_LOOKUP_ELEM, map->fd, names[(i + 1) % 2], &id))
			watch_map(id);
	}
}

static void watch_map(uint32_t id)
{
	union bpf_request opening = {.number = {.id = id}}, request = {0};
	struct watched *map = &maps[map_count];

	for (uint32_t i = 0; i < map_count; i++)
		if (maps[i].info.id == id)
			return;
	if (map_count == MOST_MAPS)
		return;
	map->fd = (int)bpf(BPF_MAP_GET_FD_BY_ID, &opening, sizeof(opening.number));
	request.info.fd = map->fd;
	request.info.size = sizeof(map->info);
	request.info.to = (unsigned long)&map->info;
	if (map->fd < 0 || bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)))
		return;
	map->info.name[sizeof(map->info.name) - 1] = 0;
	map_count++;
	if (type_of(map) == BPF_MAP_TYPE_PROG_ARRAY)
		watch_programs_in(map);
	if (type_of(map) == BPF_MAP_TYPE_ARRAY_OF_MAPS || type_of(map) == BPF_MAP_TYPE_HASH_OF_MAPS)
		watch_maps_in(map);
}

long watch_maps(int program)
{
	uint32_t used[MOST_MAPS];
	struct program_info info = {.map_count = MOST_MAPS, .maps = (unsigned long)used};
	union bpf_request request = {.info = {program, sizeof(info), (unsigned long)&info}};
	long error = bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info));

	if (error)
		return error;
	for (uint32_t i = 0; i < program_count; i++)
		if (programs[i] == info.id)
			return 0;
	if (program_count == MOST_PROGRAMS)
		return 0;
	programs[program_count++] = info.id;
	for (uint32_t i = 0; i < info.map_count && i < MOST_MAPS; i++)
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

// The keys, and of those that were taken out how many are there again.
static uint32_t keys_in(const struct watched *map, uint32_t *again)
{
	uint32_t count = 0;

	if (map->info.key_size > LARGEST_KEY)
		return 0;
	// One key may go while the next is asked for; then it begins anew.
	while (count <= map->info.entries &&
	       !element(BPF_MAP_GET_NEXT_KEY, map->fd, count ? keys[count % 2] : NULL, keys[(count + 1) % 2])) {
		count++;
		for (uint32_t i = 0; again && i < map->taken; i++)
			*again += equal(map->keys[i], keys[count % 2], map->info.key_size);
	}
	return count;
}

// An LRU map makes room itself, at once for many keys, so that it is never quite full: its keys stay, and are remembered.
// One of a single key is a variable, as bpftrace has them, and hits behave otherwise without its value.
static void make_room_for_keys(struct watched *map)
{
	const char *key = NULL;

	map->used = keys_in(map, NULL);
	map->is_short = map->info.entries > 1 && (is_lru(map) ? 2 : 1) * map->used >= map->info.entries;
	while (map->is_short && map->taken < TAKEN &&
	       !element(BPF_MAP_GET_NEXT_KEY, map->fd, key, map->keys[map->taken]) &&
	       (is_lru(map) || !element(BPF_MAP_DELETE_ELEM, map->fd, map->keys[map->taken], NULL))) {
		key = is_lru(map) ? map->keys[map->taken] : NULL;
		map->taken++;
	}
}

static uint64_t new_keys(const struct watched *map)
{
	uint32_t again = 0, now = keys_in(map, &again);
	const uint64_t kept = map->used - map->taken + again;

	if (is_lru(map) && map->is_short)
		return map->taken - again;	// as many have made room, at least, for others
	return now > kept ? now - kept : 0;
}

// --- stacks ------------------------------------------------------------------------------------------

// Of a bucket's stack; 0 where the bucket is empty.
static uint64_t stack_in(const struct watched *map, uint32_t bucket)
{
	static uint64_t stack[LARGEST_STACK];
	uint64_t digest = 14695981039346656037ULL;	// FNV-1a

	memset(stack, 0, sizeof(stack));
	if (map->info.value_size > sizeof(stack) || element(BPF_MAP_LOOKUP_ELEM, map->fd, &bucket, stack))
		return 0;
	for (size_t i = 0; i < LARGEST_STACK; i++)
		digest = (digest ^ stack[i]) * 1099511628211ULL;
	return digest;
}

static void take_stacks(struct watched *map)
{
	map->digests = map_memory(-1, MOST_BUCKETS * sizeof(uint64_t), 0, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS);
	for (uint32_t bucket = 0; bucket < map->info.entries && bucket < MOST_BUCKETS; bucket++) {
		map->digests[bucket] = stack_in(map, bucket);
		map->used += map->digests[bucket] != 0;
		element(BPF_MAP_DELETE_ELEM, map->fd, &bucket, NULL);
	}
	map->is_short = 1;	// two stacks may share a bucket of any map
}

static uint64_t other_stacks(const struct watched *map)
{
	uint64_t count = 0;

	for (uint32_t bucket = 0; bucket < map->info.entries && bucket < MOST_BUCKETS; bucket++) {
		const uint64_t digest = map->digests[bucket] ? stack_in(map, bucket) : 0;

		count += digest && digest != map->digests[bucket];
	}
	return count;
}

// --- queues and stacks -------------------------------------------------------------------------------

static uint64_t take_elements(const struct watched *map)
{
	static char value[LARGEST_ELEMENT];
	uint64_t count = 0;

	if (map->info.value_size > sizeof(value))
		return 0;
	while (count <= map->info.entries && !element(BPF_MAP_LOOKUP_AND_DELETE_ELEM, map->fd, NULL, value))
		count++;
	return count;
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
	if (!consumed || is_error(data))
		return;
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

// --- perf events -------------------------------------------------------------------------------------

static void open_events(struct watched *map)
{
	for (uint32_t cpu = 0; cpu < map->info.entries && cpu < MOST_CPUS; cpu++) {
		struct event_request event = {
			.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_BPF_OUTPUT, .size = sizeof(event),
			.sample_type = PERF_SAMPLE_RAW, .period = 1,
		};
		long fd = sys5(SYS_perf_event_open, &event, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		char *pages = fd < 0 ? NULL : map_memory(fd, EVENT_PAGES * PAGE, 0, PROT_READ | PROT_WRITE, MAP_SHARED);
		int event_fd = (int)fd;

		if (fd < 0 || is_error(pages))
			continue;
		if (element(BPF_MAP_UPDATE_ELEM, map->fd, &cpu, &event_fd) == 0)
			map->heads[map->events++] = (const void *)(pages + HEAD);
	}
	map->is_short = 1;
}

static uint64_t written(const struct watched *map)
{
	uint64_t bytes = 0;

	for (int i = 0; i < map->events; i++)
		bytes += *map->heads[i];
	return bytes;
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
	if (has_keys(map))
		make_room_for_keys(map);
	else if (type_of(map) == BPF_MAP_TYPE_STACK_TRACE)
		take_stacks(map);
	else if (is_queue(map))
		map->is_short = (map->used = take_elements(map)) >= map->info.entries;
	else if (attended)
		return 0;
	else if (type_of(map) == BPF_MAP_TYPE_RINGBUF)
		drain_ring(map);
	else if (type_of(map) == BPF_MAP_TYPE_PERF_EVENT_ARRAY)
		open_events(map);
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
	int tried = 0;

	for (uint32_t i = 0; i < map_count; i++)
		tried += maps[i].is_tried = make_room_in(&maps[i], attended);
	return tried;
}

static uint64_t new_in(const struct watched *map)
{
	if (has_keys(map))
		return new_keys(map);
	if (type_of(map) == BPF_MAP_TYPE_STACK_TRACE)
		return other_stacks(map);
	if (is_queue(map))
		return take_elements(map);
	if (type_of(map) == BPF_MAP_TYPE_RINGBUF)
		return produced(map) - map->produced;
	if (type_of(map) == BPF_MAP_TYPE_PERF_EVENT_ARRAY)
		return written(map);
	return map->is_short;
}

void show_trial(int file)
{
	for (uint32_t i = 0; i < map_count; i++) {
		const struct watched *map = &maps[i];

		if (!map->is_tried)
			continue;

		const uint64_t numbers[] = {
			map->info.type, map->info.id, map->info.entries, map->used, map->each, map->is_short, new_in(map),
		};

		for (size_t number = 0; number < sizeof(numbers) / sizeof(numbers[0]); number++) {
			print_number(file, numbers[number]);
			print(file, " ");
		}
		print(file, *map->info.name ? map->info.name : "-");
		print(file, "\n");
	}
}
