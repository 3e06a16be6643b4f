// SPDX-License-Identifier: GPL-2.0-only
// See output_rings.h. The pages of a buffer are shared by all who map it: its reader's position is there, too.
#include "bpf_abi.h"
#include "output_rings.h"
#include "process_files.h"

enum { PAGE = 4096, MOST_SIZES = 16, MAPS_SIZE = 1 << 20, NAME_SIZE = 32, NAME_OF_EVENT = 256 };
// data_head, data_tail and data_size of struct perf_event_mmap_page (include/uapi/linux/perf_event.h)
enum { DATA_HEAD = 1024, DATA_TAIL = 1032, DATA_SIZE = 1048 };

static uint64_t sizes[MOST_SIZES];
static uint32_t size_count;

static void show(uint32_t file, uint64_t size, uint64_t used)
{
	const uint64_t numbers[] = {file, size, used};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		print_number(1, numbers[i]);
		print(1, i + 1 < sizeof(numbers) / sizeof(numbers[0]) ? " " : "\n");
	}
}

static void show_ring(uint32_t file, int copy)
{
	struct map_info info = {0};
	union bpf_request request = {.info = {copy, sizeof(info), (unsigned long)&info}};
	const volatile unsigned long *consumed, *produced;

	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)) || info.type != BPF_MAP_TYPE_RINGBUF)
		return;
	consumed = map_memory(copy, PAGE, 0, PROT_READ, MAP_SHARED);
	produced = map_memory(copy, PAGE, PAGE, PROT_READ, MAP_SHARED);
	if (!is_error((const void *)consumed) && !is_error((const void *)produced))
		show(file, info.entries, *produced - *consumed);
}

// Where a program is attached nobody reads, and to map such an event would give it a buffer.
static int has_program(long pid, uint32_t file)
{
	char name[NAME_OF_EVENT] = "";
	union bpf_request request = {
		.task_file = {.pid = (uint32_t)pid, .fd = file, .size = sizeof(name), .name = (unsigned long)name},
	};

	return !bpf(BPF_TASK_FD_QUERY, &request, sizeof(request.task_file));
}

// The kernel refuses to map a buffer with another size than it has.
static void show_event(uint32_t file, int copy)
{
	for (uint32_t i = 0; i < size_count; i++) {
		const char *pages = map_memory(copy, sizes[i], 0, PROT_READ, MAP_SHARED);

		if (is_error(pages))
			continue;
		show(file, *(const volatile uint64_t *)(pages + DATA_SIZE),
		     *(const volatile uint64_t *)(pages + DATA_HEAD) - *(const volatile uint64_t *)(pages + DATA_TAIL));
		return;
	}
}

static uint64_t read_hexadecimal(const char **text)
{
	uint64_t value = 0;

	for (;; ++*text) {
		const char digit = **text;

		if (digit >= '0' && digit <= '9')
			value = value << 4 | (uint64_t)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			value = value << 4 | (uint64_t)(digit - 'a' + 10);
		else
			return value;
	}
}

static int begins_with(const char *text, const char *start)
{
	while (*start && *text == *start)
		text++, start++;
	return !*start;
}

static void add_size(uint64_t size)
{
	for (uint32_t i = 0; i < size_count; i++)
		if (sizes[i] == size)
			return;
	if (size_count < MOST_SIZES)
		sizes[size_count++] = size;
}

// Of the process's mappings of perf events.
static void find_sizes(long pid)
{
	static char maps[MAPS_SIZE + 1];
	char path[PROCESS_PATH];
	long size;

	path_of_process(path, pid, "maps");
	size = file_content(path, maps, MAPS_SIZE);
	maps[size > 0 ? size : 0] = 0;
	for (const char *at = maps; *at;) {
		const char *line = at;
		uint64_t start = read_hexadecimal(&at), end;

		at += *at == '-';
		end = read_hexadecimal(&at);
		for (; *at && *at != '\n'; at++)
			if (at > line && begins_with(at, "anon_inode:[perf_event]"))
				add_size(end - start);
		at += *at == '\n';
	}
}

long show_rings(long pid)
{
	long process = open_process(pid);

	if (process < 0)
		return process;
	find_sizes(pid);
	for (uint32_t file = 0; file < MOST_FILES; file++) {
		char name[NAME_SIZE];
		int is_map, is_event;
		long copy;

		if (!name_of_file(pid, file, name, sizeof(name)))
			continue;
		is_map = text_equal(name, "anon_inode:bpf-map");
		is_event = text_equal(name, "anon_inode:[perf_event]") && size_count && !has_program(pid, file);
		copy = is_map || is_event ? copy_of_file(process, file) : -1;
		if (copy < 0)
			continue;
		if (is_map)
			show_ring(file, (int)copy);
		else
			show_event(file, (int)copy);
		sys1(SYS_close, copy);
	}
	sys1(SYS_close, process);
	return 0;
}
