// SPDX-License-Identifier: GPL-2.0-only
// Loads a user's BPF programs by libbpf, attaches them as their sections say, and pins them: they outlive this process.
//
//   bpfload attach [entries MAP NUMBER]... [fill MAP FILE]... [read TOOL PIPES] FOLDER OBJECT [NAME]
//                  [at FILE OFFSET SEMAPHORE SYMBOL]
//                                          makes FOLDER/NAME/program and FOLDER/NAME/link-NUMBER of each program, or of the
//                                          one of this name, and FOLDER/map-NUMBER of each map; says of each program
//                                          ID NAME SECTION, and "sized ENTRIES NAME" of each map that its source
//                                          gives no size, "enlarged BYTES NAME" of each ring that has got more room.
//                                          A uprobe whose section names no place is at this one: SYMBOL
//                                          of a static probe point is PROVIDER:NAME, SEMAPHORE where its counter is.
//                                          Maps get so many entries, and the keys and values of a file, one behind the
//                                          other, before anything is attached; and so are the maps that user space reads
//                                          opened by the program TOOL (bpfprobe read), which says how many those are
//                                          With "together NAMES TOOL" those of NAMES are, which commas separate, or with
//                                          "all" those that libbpf loads by itself: as by a tool's own loader, what
//                                          names no place is loaded alone, "unattached ID NAME SECTION", and what is
//                                          optional is "left 0 NAME SECTION". Then TOOL (bpfprobe) says what is attached
//   bpfload stacks [entries MAP NUMBER]... OBJECT [NAME]
//                                                   says of each BYTES[+BYTES...] NAME: the stack of the program and of the functions
//                                          that it calls, as the verifier has found; attaches none
//   bpfload lines                          of all loaded programs with type information: "code ADDRESS BYTES" for each
//                                          function that the kernel has compiled, then "line ADDRESS NUMBER FILE\tTEXT";
//                                          none where it shows no addresses (kptr_restrict)
//
// Removing the folder detaches them. The words of libbpf and of the kernel's verifier go to stderr.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// What user space sets of maps: their max_entries, and files with what is in them.
enum { MOST_SET = 64 };
static struct set {
	const char *map, *value;
} entries_set[MOST_SET], filled[MOST_SET];
static int entries_set_count, filled_count;
static const char *reader_tool, *reader_pipes;
// The programs that are attached at once, and what tells how; NULL for others.
static const char *together, *teller;
#define ALL "all"

// Entries of a map without max_entries, which its own loader would set: as most tools of libbpf's have (MAX_ENTRIES of
// libbpf-tools); bytes of a ring.
enum { USUAL_ENTRIES = 10240, USUAL_RING = 256 << 10 };
// Nobody reads rings while calls are timed. One that its user space reads in time has room for each hit, and what a hit
// takes then does not depend on its size: so a ring gets room for all of a cell's hits. Bytes of one, and of all.
enum { LARGE_RING = 16 << 20, LARGE_RINGS = 64 << 20 };
enum { LOG_STATS = 4, STATS_SIZE = 4096 };	// BPF_LOG_STATS of include/linux/bpf_verifier.h
// print_verification_stats() of kernel/bpf/verifier.c: "stack depth 16+8", on Linux 7.3 "stack depth max 32"
#define STACK_DEPTH "stack depth "
#define OF_ALL "max "
// Limits for one program: lines and functions, and bytes of a file's path and a line's text.
enum { MOST_LINES = 1 << 14, MOST_FUNCTIONS = 256, LONGEST_PATH = 1000, LONGEST_TEXT = 200 };
enum { LONGEST_PROVIDER = 128 };	// of a static probe point

static int say(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, arguments);
}

static int fail(const char *what, const char *about, long error)
{
	fprintf(stderr, "bpfload: %s%s%s%s\n", what, about, error ? ": " : "", error ? strerror(labs(error)) : "");
	return 1;
}

// The place in a user-space program, for sections that do not name one.
struct place {
	const char *file, *symbol;
	size_t offset, semaphore;
};

static __u32 id_of(const struct bpf_program *program)
{
	struct bpf_prog_info info = {0};
	__u32 size = sizeof(info);

	return bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) ? 0 : info.id;
}

// All links of a program: one at a static probe point has several, of which libbpf shows none.
static int pin_links(const struct bpf_program *program, const char *place)
{
	const __u32 mine = id_of(program);
	int links = 0;

	for (__u32 id = 0; bpf_link_get_next_id(id, &id) == 0;) {
		struct bpf_link_info info = {0};
		__u32 size = sizeof(info);
		int fd = bpf_link_get_fd_by_id(id), error = 0;
		char path[PATH_MAX + 32];

		if (fd < 0)	// another's, which has gone
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) && info.prog_id == mine) {
			snprintf(path, sizeof(path), "%s/link-%d", place, links++);
			error = bpf_obj_pin(fd, path);
		}
		close(fd);
		if (error)
			return fail("cannot pin a link of ", bpf_program__name(program), error);
	}
	return links ? 0 : fail("the kernel has no link of ", bpf_program__name(program), 0);
}

static int pin(const struct bpf_program *program, const char *folder)
{
	const char *name = bpf_program__name(program);
	char place[PATH_MAX], path[PATH_MAX + 16];
	int error;

	if (snprintf(place, sizeof(place), "%s/%s", folder, name) >= (int)sizeof(place))
		return fail("too long a name: ", name, 0);
	if (mkdir(place, 0700) != 0)
		return fail("cannot make ", place, errno);
	if (pin_links(program, place))
		return 1;
	snprintf(path, sizeof(path), "%s/program", place);
	error = bpf_obj_pin(bpf_program__fd(program), path);
	return error ? fail("cannot pin ", name, error) : 0;
}

// What a map holds for its user space goes with the last user's reference: the kernel empties arrays of programs and ends
// timers (map_release_uref of kernel/bpf/syscall.c). A pinned map has such a reference; one that a program uses has none.
static int pin_maps(const struct bpf_object *object, const char *folder)
{
	const struct bpf_map *map;
	int number = 0;

	bpf_object__for_each_map(map, object) {
		char path[PATH_MAX];
		int error;

		if (bpf_map__fd(map) < 0)	// not made: the object has it for newer kernels
			continue;
		if (snprintf(path, sizeof(path), "%s/map-%d", folder, number++) >= (int)sizeof(path))
			return fail("too long a folder: ", folder, 0);
		error = bpf_obj_pin(bpf_map__fd(map), path);
		if (error)
			return fail("cannot pin the map ", bpf_map__name(map), error);
	}
	return 0;
}

static int show(const struct bpf_program *program)
{
	const __u32 id = id_of(program);

	if (!id)
		return fail("the kernel does not know ", bpf_program__name(program), errno);
	printf("%u %s %s\n", id, bpf_program__name(program), bpf_program__section_name(program));
	return 0;
}

// Whether the programs to be attached are named one by one, and this is one of them.
static int is_listed(const struct bpf_program *program)
{
	const char *name = bpf_program__name(program), *at = together;

	while (at && (strcspn(at, ",") != strlen(name) || strncmp(at, name, strlen(name)) != 0))
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	return at != NULL;
}

static int has_list(void)
{
	return together && strcmp(together, ALL) != 0;
}

static int is_wanted(const struct bpf_program *program, const char *name)
{
	if (has_list())
		return is_listed(program);
	return name ? strcmp(bpf_program__name(program), name) == 0 : bpf_program__autoload(program);
}

static int begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

// Uprobes at many places, which libbpf knows since 1.3 (sessions since 1.6): of an older one the kernel is asked itself.
static const struct many {
	const char *section;
	__u32 attach_type, flags;	// BPF_TRACE_UPROBE_MULTI and _SESSION, BPF_F_UPROBE_MULTI_RETURN
} many[] = {{"uprobe.multi", 48, 0}, {"uretprobe.multi", 48, 1}, {"uprobe.session", 57, 0}};

static const struct many *many_of(const struct bpf_program *program)
{
	for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		if (begins_with(bpf_program__section_name(program), many[i].section))
			return &many[i];
	return NULL;
}

static void complete_type(struct bpf_program *program)
{
	if (many_of(program) && bpf_program__type(program) == BPF_PROG_TYPE_UNSPEC) {
		bpf_program__set_type(program, BPF_PROG_TYPE_KPROBE);
		bpf_program__set_expected_attach_type(program, many_of(program)->attach_type);
	}
}

// Buffer for the verifier's log: how many instructions it walked, and how much stack the program takes.
static void keep_statistics(struct bpf_program *program)
{
	char *log = calloc(1, STATS_SIZE);

	if (log && bpf_program__set_log_buf(program, log, STATS_SIZE) == 0)
		bpf_program__set_log_level(program, LOG_STATS);
}

// Where no folder is named, libbpf pins maps that ask for it in /sys/fs/bpf, where they outlive this program.
static void unpin_maps(struct bpf_object *object)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
		bpf_map__set_pin_path(map, NULL);
}

// The size to give to a map that has none; 0 if the kernel needs none, or libbpf sets it.
static __u32 usual_entries(enum bpf_map_type type)
{
	switch (type) {
	case BPF_MAP_TYPE_RINGBUF:
	case BPF_MAP_TYPE_USER_RINGBUF:
		return USUAL_RING;
	case BPF_MAP_TYPE_PERF_EVENT_ARRAY:
	case BPF_MAP_TYPE_CGROUP_STORAGE:
	case BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE:
	case BPF_MAP_TYPE_SK_STORAGE:
	case BPF_MAP_TYPE_INODE_STORAGE:
	case BPF_MAP_TYPE_TASK_STORAGE:
	case BPF_MAP_TYPE_STRUCT_OPS:
		return 0;
	default:
		return type > BPF_MAP_TYPE_USER_RINGBUF ? 0 : USUAL_ENTRIES;
	}
}

static int is_sized_by_loader(const struct bpf_map *map)
{
	return !bpf_map__is_internal(map) && bpf_map__max_entries(map) == 0 && usual_entries(bpf_map__type(map));
}

static int is_set(const struct bpf_map *map)
{
	for (int i = 0; i < entries_set_count; i++)
		if (strcmp(entries_set[i].map, bpf_map__name(map)) == 0)
			return 1;
	return 0;
}

// Rings whose size is asked for keep it.
static void enlarge_rings(struct bpf_object *object)
{
	struct bpf_map *map;
	unsigned int rings = 0, bytes = LARGE_RING;

	bpf_object__for_each_map(map, object)
		rings += bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF;
	while (rings > LARGE_RINGS / bytes)
		bytes /= 2;
	bpf_object__for_each_map(map, object) {
		if (bpf_map__type(map) != BPF_MAP_TYPE_RINGBUF || is_set(map) || bpf_map__max_entries(map) >= bytes)
			continue;
		if (bpf_map__set_max_entries(map, bytes) == 0)
			printf("enlarged %u %s\n", bytes, bpf_map__name(map));
	}
}

// Sets the sizes that are asked for, and those of maps that a tool's own loader would set. Prints the latter.
static int size_maps(struct bpf_object *object)
{
	struct bpf_map *map;

	for (int i = 0; i < entries_set_count; i++) {
		map = bpf_object__find_map_by_name(object, entries_set[i].map);
		if (!map || bpf_map__set_max_entries(map, strtoul(entries_set[i].value, NULL, 10)))
			return fail("the object has no map to size: ", entries_set[i].map, 0);
	}
	bpf_object__for_each_map(map, object) {
		if (!is_sized_by_loader(map) || bpf_map__set_max_entries(map, usual_entries(bpf_map__type(map))))
			continue;
		if (bpf_map__type(map) != BPF_MAP_TYPE_RINGBUF)
			printf("sized %u %s\n", bpf_map__max_entries(map), bpf_map__name(map));
	}
	enlarge_rings(object);
	return 0;
}

// Without the programs that they have to hold, arrays of programs cannot be made. A program that goes on in one of them is
// refused then.
static void leave_out_arrays(struct bpf_object *object)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object) {
		if (bpf_map__type(map) != BPF_MAP_TYPE_PROG_ARRAY)
			continue;
		bpf_map__set_autocreate(map, false);
		// libbpf 1.1 fills one that is not there, too (bpf_object_init_prog_arrays()).
		bpf_map__set_type(map, BPF_MAP_TYPE_ARRAY);
	}
}

// Whether maps may have programs of the object. All of them are loaded then.
static int has_programs_in_maps(struct bpf_object *object)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
		if (bpf_map__type(map) == BPF_MAP_TYPE_PROG_ARRAY || bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS)
			return 1;
	return 0;
}

// The object with the program of this name, and with the others if it may go on in one of them (tail calls). Where one of
// them is refused, the named one is loaded alone. NULL where that is refused, too.
static struct bpf_object *loaded(const char *file, const char *name, const char *folder)
{
	// Maps that ask to be pinned by name are handled like the others.
	LIBBPF_OPTS(bpf_object_open_opts, options, .pin_root_path = folder);
	int error = 0;

	for (int alone = 0, others = name != NULL; alone <= others; alone++) {
		struct bpf_object *object = bpf_object__open_file(file, &options);
		struct bpf_program *program;
		int found = 0, with_others;

		if (!object) {
			fail("libbpf cannot open the object", "", errno);
			return NULL;
		}
		others = 0;
		with_others = !alone && has_programs_in_maps(object);
		if (alone)	// the lab reads what follows: no words on the others
			fprintf(stderr, "bpfload: once more, without the others\n");
		if (!folder)
			unpin_maps(object);
		if (size_maps(object))
			return NULL;
		if (alone)
			leave_out_arrays(object);
		bpf_object__for_each_program(program, object) {
			int is_named = name && is_wanted(program, name);

			complete_type(program);

			found |= is_named;
			others |= name && !is_named && with_others;
			if (name && (is_named || !with_others))
				bpf_program__set_autoload(program, is_named);
			if (has_list() && (is_listed(program) || !with_others))
				bpf_program__set_autoload(program, is_listed(program));
			if (!folder)
				keep_statistics(program);
		}
		if (name && !found) {
			fail("the object has no program ", name, 0);
			return NULL;
		}
		error = bpf_object__load(object);
		if (!error)
			return object;
		bpf_object__close(object);
	}
	fail("the object does not load", "", error);
	return NULL;
}

static int show_stacks(const char *file, const char *name)
{
	struct bpf_object *object = loaded(file, name, NULL);
	struct bpf_program *program;

	if (!object)
		return 1;
	bpf_object__for_each_program(program, object) {
		const char *log = is_wanted(program, name) ? bpf_program__log_buf(program, &(size_t){0}) : NULL;
		const char *depth = log ? strstr(log, STACK_DEPTH) : NULL;
		char *end;

		if (!depth)
			continue;
		depth += strlen(STACK_DEPTH);
		if (strncmp(depth, OF_ALL, strlen(OF_ALL)) == 0)
			depth += strlen(OF_ALL);
		printf("%ld", strtol(depth, &end, 10));
		while (*end == '+')	// of a function that it calls
			printf("+%ld", strtol(end + 1, &end, 10));
		printf(" %s\n", bpf_program__name(program));
	}
	return 0;
}

static int length_to(const char *text, const char *ends, size_t most)
{
	return (int)(strcspn(text, ends) < most ? strcspn(text, ends) : most);
}

static void show_lines_of(int fd)
{
	static struct bpf_line_info lines[MOST_LINES];
	static __u64 addresses[MOST_LINES], starts[MOST_FUNCTIONS];
	static __u32 sizes[MOST_FUNCTIONS];
	struct bpf_prog_info info = {
		.nr_line_info = MOST_LINES, .line_info_rec_size = sizeof(lines[0]), .line_info = (unsigned long)lines,
		.nr_jited_line_info = MOST_LINES, .jited_line_info_rec_size = sizeof(addresses[0]),
		.jited_line_info = (unsigned long)addresses,
		.nr_jited_ksyms = MOST_FUNCTIONS, .jited_ksyms = (unsigned long)starts,
		.nr_jited_func_lens = MOST_FUNCTIONS, .jited_func_lens = (unsigned long)sizes,
	};
	__u32 size = sizeof(info);
	struct btf *names;

	// The kernel takes back the places of what it does not show, and says how many there are in all.
	if (bpf_obj_get_info_by_fd(fd, &info, &size) || !info.jited_line_info || !info.jited_ksyms ||
	    info.nr_jited_line_info > MOST_LINES || info.nr_jited_ksyms > MOST_FUNCTIONS)
		return;
	names = btf__load_from_kernel_by_id(info.btf_id);
	for (__u32 i = 0; names && i < info.nr_jited_ksyms; i++)
		printf("code %llu %u\n", starts[i], sizes[i]);
	for (__u32 i = 0; names && i < info.nr_jited_line_info; i++) {
		const char *file = btf__name_by_offset(names, lines[i].file_name_off) ?: "";
		const char *text = btf__name_by_offset(names, lines[i].line_off) ?: "";

		printf("line %llu %u %.*s\t%.*s\n", addresses[i], BPF_LINE_INFO_LINE_NUM(lines[i].line_col),
		       length_to(file, "\t\n", LONGEST_PATH), file, length_to(text, "\n", LONGEST_TEXT), text);
	}
	btf__free(names);
}

// Lines of all programs: an attached one may call others (tail calls).
static int show_lines(void)
{
	for (__u32 id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd >= 0)
			show_lines_of(fd);
		close(fd);
	}
	return 0;
}

// Whether the section names no place, or the symbol of this one, whose file may have several names.
static int is_at(const char *section, const struct place *place)
{
	const char *path = strchr(section, '/'), *colon = strrchr(section, ':');

	return !path || (colon > path && strcmp(colon + 1, place->symbol) == 0);
}

static int attach_as_many(const struct bpf_program *program, const struct place *place)
{
	unsigned long offset = place->offset, semaphore = place->semaphore;
	const struct {	// of union bpf_attr, since Linux 6.6
		__u32 program, target, attach_type, flags;
		__u64 path, offsets, semaphores, cookies;
		__u32 count, many_flags, pid, padding;
	} request = {
		.program = bpf_program__fd(program), .attach_type = many_of(program)->attach_type,
		.path = (unsigned long)place->file, .offsets = (unsigned long)&offset,
		.semaphores = semaphore ? (unsigned long)&semaphore : 0, .count = 1,
		.many_flags = many_of(program)->flags,
	};

	return syscall(SYS_bpf, BPF_LINK_CREATE, &request, sizeof(request)) < 0 ? -errno : 0;
}

static int attach_at(const struct bpf_program *program, const struct place *place)
{
	const char *section = bpf_program__section_name(program), *colon = strchr(place->symbol, ':');
	LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = begins_with(section, "uretprobe"),
		    .ref_ctr_offset = place->semaphore);
	char provider[LONGEST_PROVIDER] = "";

	if (many_of(program))
		return attach_as_many(program, place);
	if (begins_with(section, "usdt") && colon) {
		snprintf(provider, sizeof(provider), "%.*s", (int)(colon - place->symbol), place->symbol);
		return bpf_program__attach_usdt(program, -1, place->file, provider, colon + 1, NULL) ? 0 : -errno;
	}
	if (!begins_with(section, "uprobe") && !options.retprobe)
		return -EOPNOTSUPP;
	return bpf_program__attach_uprobe_opts(program, -1, place->file, place->offset, &options) ? 0 : -errno;
}

static int attach_program(const struct bpf_program *program, const struct place *place)
{
	const char *section = bpf_program__section_name(program);

	// libbpf reads a section that names no place, too, and attaches nothing.
	if (place && is_at(section, place) && (!strchr(section, '/') || many_of(program)))
		return attach_at(program, place);
	errno = EOPNOTSUPP;
	return bpf_program__attach(program) ? 0 : -errno;
}

static int fill_map(const struct bpf_object *object, const struct set *set)
{
	const struct bpf_map *map = bpf_object__find_map_by_name(object, set->map);
	const size_t key = map ? bpf_map__key_size(map) : 0, value = map ? bpf_map__value_size(map) : 0;
	char *entry = malloc(key + value + 1);
	FILE *file = fopen(set->value, "r");
	int error = 0;

	if (!key || !value || !entry || !file)
		return fail("no entries to fill a map with: ", set->map, errno);
	while (!error && fread(entry, key + value, 1, file) == 1)
		error = bpf_map_update_elem(bpf_map__fd(map), entry, entry + key, BPF_ANY);
	fclose(file);
	free(entry);
	return error ? fail("the kernel does not take an entry of ", set->map, error) : 0;
}

// Returns when it has opened the maps, and goes on in the background.
static int start_reader(const char *folder)
{
	const pid_t process = fork();
	int status = 0;

	if (process == 0) {
		execl(reader_tool, reader_tool, "read", reader_pipes, folder, (char *)NULL);
		_exit(1);
	}
	if (process < 0 || waitpid(process, &status, 0) < 0)
		return fail("cannot start the reader of maps", "", errno);
	return status ? fail("the reader of maps does not open them", "", 0) : 0;
}

static int fail_to_attach(const struct bpf_program *program, int error)
{
	char about[LONGEST_PATH];

	if (!together)
		return fail("cannot attach ", bpf_program__section_name(program), error);
	snprintf(about, sizeof(about), "%s (%s)", bpf_program__name(program), bpf_program__section_name(program));
	return fail("cannot attach ", about, error);
}

static void show_unattached(const char *why, const struct bpf_program *program, __u32 id)
{
	printf("%s %u %s %s\n", why, id, bpf_program__name(program), bpf_program__section_name(program));
}

static int tell_attached(void)
{
	char process[16];
	int status;
	pid_t child;

	snprintf(process, sizeof(process), "%d", getpid());
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl(teller, teller, "attached", process, NULL);
		_exit(127);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 :
	       fail("nobody tells what is attached: ", teller, 0);
}

static int attach(const char *folder, const char *file, const char *name, const struct place *place)
{
	struct bpf_object *object = loaded(file, name, folder);
	struct bpf_program *program;
	int programs = 0;

	if (!object || pin_maps(object, folder))
		return 1;
	for (int i = 0; i < filled_count; i++)
		if (fill_map(object, &filled[i]))
			return 1;
	if (reader_tool && start_reader(folder))
		return 1;
	bpf_object__for_each_program(program, object) {
		const char *section = bpf_program__section_name(program);
		int error;

		if (!is_wanted(program, name)) {
			if (together && !has_list())
				show_unattached("left", program, 0);
			continue;
		}
		programs++;
		error = attach_program(program, place);
		if (together && error == -EOPNOTSUPP) {
			show_unattached("unattached", program, id_of(program));
			continue;
		}
		if (error == -EOPNOTSUPP || error == -ESRCH)
			return fail("libbpf attaches nothing by itself for the section ", section, 0);
		if (error)
			return fail_to_attach(program, error);
		if (pin(program, folder) || show(program))
			return 1;
	}
	if (!programs)
		return fail("the object has no program", "", 0);
	return together ? tell_attached() : 0;
}

static int run_command(int count, char **words)
{
	const char *command = count > 1 ? words[1] : "";
	const int has_place = count > 5 && strcmp(words[count - 5], "at") == 0, rest = has_place ? count - 5 : count;
	const struct place place = {
		.file = has_place ? words[count - 4] : NULL,
		.offset = has_place ? strtoul(words[count - 3], NULL, 10) : 0,
		.semaphore = has_place ? strtoul(words[count - 2], NULL, 10) : 0,
		.symbol = has_place ? words[count - 1] : NULL,
	};

	libbpf_set_print(say);
	if (strcmp(command, "attach") == 0 && (rest == 4 || rest == 5))
		return attach(words[2], words[3], rest == 5 ? words[4] : NULL, has_place ? &place : NULL);
	if (strcmp(command, "stacks") == 0 && (count == 3 || count == 4))
		return show_stacks(words[2], words[3]);
	if (strcmp(command, "lines") == 0 && count == 2)
		return show_lines();
	return fail("attach FOLDER OBJECT [NAME] [at FILE OFFSET SEMAPHORE SYMBOL], stacks OBJECT [NAME], or lines", "", 0);
}

// Takes the words behind the command that say what is set; returns how many those are.
static int take_set(int count, char **words)
{
	int taken = 0;

	for (; count - taken > 2; taken += 3) {
		const struct set set = {words[taken + 1], words[taken + 2]};

		if (strcmp(words[taken], "entries") == 0 && entries_set_count < MOST_SET)
			entries_set[entries_set_count++] = set;
		else if (strcmp(words[taken], "fill") == 0 && filled_count < MOST_SET)
			filled[filled_count++] = set;
		else if (strcmp(words[taken], "read") == 0)
			reader_tool = words[taken + 1], reader_pipes = words[taken + 2];
		else if (strcmp(words[taken], "together") == 0)
			together = set.map, teller = set.value;
		else
			break;
	}
	return taken;
}

int main(int count, char **words)
{
	const int taken = count > 2 ? take_set(count - 2, words + 2) : 0;

	if (taken) {
		memmove(words + 2, words + 2 + taken, (count - 2 - taken + 1) * sizeof(*words));	// with the NULL behind them
		count -= taken;
	}
	return run_command(count, words);
}
