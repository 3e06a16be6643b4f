// SPDX-License-Identifier: GPL-2.0-only
// See map_reader.h.
#include "lists.h"
#include "map_reader.h"
#include "map_trial.h"

enum { MOST_MAPS = 64, PATH_SIZE = 256, PAGE = 4096, TENS = 10 };
enum { MOST_CPUS = 8192 };	// the most that a kernel for x86 is built for: NR_CPUS_RANGE_END of arch/x86/Kconfig
// Bytes of a CPU's buffer, and of all. A record has room for each hit of a cell, as in a buffer that is read in time.
enum { LARGE = 16 << 20, ALL = 64 << 20, SMALLEST = 64 << 10 };
enum { DATA_HEAD = 1024, DATA_TAIL = 1032 };	// of struct perf_event_mmap_page
enum { E_NODEV = 19, E_INVAL = 22 };

struct buffer {
	volatile uint64_t *produced, *consumed;
	const char *data;
	uint64_t before;
	int event;
};

struct map_reader {
	struct map_info info;
	int fd;
	uint32_t buffer_count;
	struct buffer *buffers;
	uint64_t size, used, each;
	int is_short;
	const char *untried;		// why
};

// struct perf_event_header of include/uapi/linux/perf_event.h
struct record {
	uint32_t type;
	uint16_t misc, size;
};

static struct map_reader readers[MOST_MAPS];
static int reader_count, event_count, is_filled;

static int is_ring(const struct map_reader *map)
{
	return map->info.type == BPF_MAP_TYPE_RINGBUF;
}

static int pinned_map(const char *folder, int number)
{
	static const char name[] = "/map-";
	char path[PATH_SIZE];
	union bpf_request request = {.object = {.path = (unsigned long)path}};
	size_t length = text_length(folder);

	if (length + sizeof(name) + 3 > sizeof(path))
		return -E_INVAL;
	memcpy(path, folder, length);
	memcpy(path + length, name, sizeof(name));
	length += sizeof(name) - 1;
	if (number >= TENS * TENS)
		path[length++] = '0' + number / (TENS * TENS);
	if (number >= TENS)
		path[length++] = '0' + number / TENS % TENS;
	path[length++] = '0' + number % TENS;
	path[length] = 0;
	return (int)bpf(BPF_OBJ_GET, &request, sizeof(request.object));
}

static void open_ring(struct map_reader *map)
{
	void *consumed = map_memory(map->fd, PAGE, 0, PROT_READ | PROT_WRITE, MAP_SHARED);
	void *produced = map_memory(map->fd, PAGE, PAGE, PROT_READ, MAP_SHARED);

	map->size = map->info.entries;
	map->buffer_count = 1;
	map->buffers->consumed = consumed;
	map->buffers->produced = produced;
	if (is_error(consumed) || is_error(produced))
		map->untried = "memory";
}

static void open_events(struct map_reader *map)
{
	const uint32_t slots = map->info.entries < MOST_CPUS ? map->info.entries : MOST_CPUS;

	for (uint32_t cpu = 0; cpu < slots; cpu++) {
		struct event_request event = {
			.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_BPF_OUTPUT, .size = sizeof(event),
			// Each record wakes the reader, as in libbpf (perf_buffer__new()) and bcc: by an interrupt of the CPU
			// to itself (IRQ work).
			.sample_type = PERF_SAMPLE_RAW, .period = 1, .wakeup = 1,
		};
		long fd = sys5(SYS_perf_event_open, &event, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		struct buffer *buffer = &map->buffers[map->buffer_count];
		union bpf_request request = {
			.element = {map->fd, (unsigned long)&cpu, (unsigned long)&buffer->event, 0},
		};

		if (cpu && (fd == -E_NODEV || fd == -E_INVAL))	// there is no such CPU, or it is offline
			continue;
		buffer->event = (int)fd;
		if (fd < 0 || bpf(BPF_MAP_UPDATE_ELEM, &request, sizeof(request.element))) {
			map->untried = "events";
			return;
		}
		map->buffer_count++;
		event_count++;
	}
}

// Without a buffer an event takes no records: ENOENT, too.
static void map_events(struct map_reader *map)
{
	map->size = LARGE;
	while (map->size > SMALLEST && map->size * (uint64_t)event_count > ALL)
		map->size /= 2;
	for (uint32_t i = 0; i < map->buffer_count; i++) {
		struct buffer *buffer = &map->buffers[i];
		char *pages = map_memory(buffer->event, PAGE + map->size, 0, PROT_READ | PROT_WRITE, MAP_SHARED);

		if (is_error(pages)) {
			map->untried = "events";
			return;
		}
		buffer->produced = (void *)(pages + DATA_HEAD);
		buffer->consumed = (void *)(pages + DATA_TAIL);
		buffer->data = pages + PAGE;
	}
}

static void open_reader(int fd)
{
	struct map_reader *map = &readers[reader_count];
	union bpf_request request = {.info = {fd, sizeof(map->info), (unsigned long)&map->info}};

	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)) ||
	    (map->info.type != BPF_MAP_TYPE_RINGBUF && map->info.type != BPF_MAP_TYPE_PERF_EVENT_ARRAY)) {
		sys1(SYS_close, fd);
		return;
	}
	map->fd = fd;
	map->info.name[sizeof(map->info.name) - 1] = 0;
	map->buffers = room_for((is_ring(map) ? 1 : MOST_CPUS) * sizeof(*map->buffers));
	reader_count++;
	if (is_error(map->buffers))
		map->untried = "memory";
	else if (is_ring(map))
		open_ring(map);
	else
		open_events(map);
}

int opened_events(void)
{
	return event_count;
}

int open_readers(const char *folder)
{
	for (int number = 0, fd; reader_count < MOST_MAPS && (fd = pinned_map(folder, number)) >= 0; number++)
		open_reader(fd);
	for (int i = 0; i < reader_count; i++)
		if (!is_ring(&readers[i]) && !readers[i].untried)
			map_events(&readers[i]);
	return reader_count;
}

static uint64_t largest_record(const struct map_reader *map, const struct buffer *buffer)
{
	uint64_t largest = 0;

	for (uint64_t at = *buffer->consumed; at < buffer->before;) {
		const uint64_t size = ((const struct record *)(buffer->data + (at & (map->size - 1))))->size;

		if (!size)
			break;
		largest = size > largest ? size : largest;
		at += size;
	}
	return largest;
}

static void make_room_in(struct map_reader *map)
{
	map->used = map->each = map->is_short = 0;
	for (uint32_t i = 0; i < map->buffer_count; i++) {
		struct buffer *buffer = &map->buffers[i];
		uint64_t used, each;

		buffer->before = *buffer->produced;
		used = buffer->before - *buffer->consumed;
		each = largest_record(map, buffer);
		map->used = used > map->used ? used : map->used;
		map->each = each > map->each ? each : map->each;
		if (map->size - used <= each) {	// of a full buffer the kernel leaves a byte free
			map->is_short |= each != 0;
			*buffer->consumed = buffer->before;
		}
	}
}

void begin_reading(void)
{
	for (int i = 0; i < reader_count; i++)
		if (!is_ring(&readers[i]) && !readers[i].untried)
			make_room_in(&readers[i]);
}

// A ring buffer has room for less than its size, a perf event's buffer of the size less one byte (CIRC_SPACE()).
void fill_buffers(void)
{
	is_filled = 1;
	for (int i = 0; i < reader_count; i++)
		for (uint32_t at = 0; !readers[i].untried && at < readers[i].buffer_count; at++) {
			struct buffer *buffer = &readers[i].buffers[at];

			buffer->before = *buffer->produced;
			*buffer->consumed = buffer->before - readers[i].size + (is_ring(&readers[i]) ? 0 : 1);
		}
}

static uint64_t most_written(const struct map_reader *map)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < map->buffer_count; i++) {
		const uint64_t bytes = *map->buffers[i].produced - map->buffers[i].before;

		most = bytes > most ? bytes : most;
	}
	return most;
}

void show_read(int file)
{
	for (int i = 0; i < reader_count; i++) {
		const struct map_reader *map = &readers[i];
		struct map_use use = {.info = map->info, .used = map->used, .each = map->each, .is_short = map->is_short,
				      .untried = map->untried, .came = map->untried ? 0 : most_written(map)};

		if (is_ring(map) && !is_filled)
			continue;
		use.info.entries = (uint32_t)map->size;
		show_use(file, &use);
	}
}
