// SPDX-License-Identifier: GPL-2.0-only
// Attaches a BPF program to a place in the kernel, and pins it below a folder of the BPF file system to outlive this one.
//
//   bpfprobe attach FOLDER PROGRAM TYPE ATTACH_TYPE LINK FLAGS CONTEXT TARGET OFFSET SEMAPHORE
//                               makes FOLDER/program, FOLDER/link, and its maps
//   PROGRAM: noop, count, count-shared, record, stack, witness
//   TYPE, ATTACH_TYPE: the program's, as the kernel numbers them
//   LINK, TARGET: kprobe, multi, trampoline, functions FUNCTION; tracepoint ID; raw, typed NAME; uprobe,
//                 places FILE
//   FLAGS: 1 at a function's return; CONTEXT: a number of enum context
//   FUNCTION: its name, or of a kprobe its address, as 0xffffffff811234a0
//   OFFSET: in the function or the file; SEMAPHORE: where the file has the counter of a static probe point, or 0
//   bpfprobe info FOLDER        id=9 jited=57 code=18446744072639103232 runs=1234 missed=0 translated=64 verified=8
//   bpfprobe counts FOLDER      count=1000 dropped=0: of all CPUs
//   bpfprobe hits FOLDER        a line for each process: PID HITS
//   bpfprobe events FOLDER      the events in the ring, 64 bytes each, as they are
//   bpfprobe stack FOLDER NUMBER  a line for each function of a traced stack: its address
//   bpfprobe empty FOLDER       counts and ring begin anew
//   bpfprobe try WHO GO SAID FOLDER...  makes room in the programs' maps; WHO: alone or attended; says of how many. Behind
//                               a write to the pipe GO it says into the pipe SAID what has come into them meanwhile, as
//                               map_trial.h says
//   bpfprobe read PIPES FOLDER  reads the ring buffers and perf event arrays among the pinned maps of FOLDER until it is told
//                               to end; says "reads NUMBER EVENTS PID" of them, and its session. Behind a letter written to the pipe PIPES/go it does
//                               what that says, and closes the pipe PIPES/said: t begins a trial, f leaves no room, s says
//                               what has come in since, as map_reader.h says, e ends
//   bpfprobe hold FOLDER        has the link open until it is killed
//
// For programs that others have loaded:
//   bpfprobe attached PID       what a process has attached, as attached.h says
//   bpfprobe loaded PID         the programs that a process has loaded, as attached.h says
//   bpfprobe pin FOLDER ID      pins a program as FOLDER/program
//   bpfprobe start FILE BYTES PROGRAM ARGUMENT...
//                               starts a program in the background and prints its process, as background.h says
//   bpfprobe rest PID           returns when a process and those of its session wait: "waiting", or "ended", or "busy" after
//                               some minutes, as background.h says
//   bpfprobe signal GROUP NUMBER  sends a signal to a process group
//   bpfprobe session PID        a line for each process of its session
//   bpfprobe rings PID          how full the buffers are that a process reads, as output_rings.h says
//   bpfprobe gone ID...         returns when the kernel has none of these programs any more
//
// Removing the files of FOLDER detaches the program.
#include "attached.h"
#include "background.h"
#include "bpf_abi.h"
#include "btf.h"
#include "map_reader.h"
#include "map_trial.h"
#include "output_rings.h"
#include "programs.h"

enum { RING_SIZE = 4 << 20, MOST_THREADS = 4096, MOST_CPUS = 1024, PATH_MAX = 256, LOG_SIZE = 1 << 16, PAGE = 4096 };
// PERF_MAX_STACK_DEPTH of include/uapi/linux/perf_event.h. Of two stacks with one bucket the kernel keeps the later.
enum { MOST_FRAMES = 127, MOST_STACKS = 8192 };
enum { RING_HEADER = 8, EVENTS_AT_ONCE = 1024 };
enum { FIFO = 0010600, FOLDER_MODE = 0700 };
enum { SEMAPHORE_SHIFT = 32 };	// PERF_UPROBE_REF_CTR_OFFSET_SHIFT of kernel/events/core.c, since Linux 4.20
// Of the guest's own clock: the kernel frees a program some milliseconds after its last file, behind an RCU grace period.
enum { TRIES = 1000, PAUSE_NS = 10 * 1000 * 1000 };

static char verifier_words[LOG_SIZE];

static void fail(const char *what, const char *about, long error) __attribute__((noreturn));
static void fail(const char *what, const char *about, long error)
{
	print(2, "bpfprobe: ");
	print(2, what);
	print(2, about);
	if (error) {
		print(2, ": error ");
		print_number(2, -error);
	}
	print(2, "\n");
	exit_program(1);
}

static void print_value(const char *name, uint64_t value)
{
	print(1, name);
	print_number(1, value);
}

static long checked(long result, const char *what, const char *about)
{
	if (result < 0)
		fail(what, about, result);
	return result;
}

static const char *path_in(const char *folder, const char *name)
{
	static char path[PATH_MAX];
	size_t length = text_length(folder), rest = text_length(name);

	if (length + rest + 2 > sizeof(path))
		fail("too long a path: ", folder, 0);
	memcpy(path, folder, length);
	path[length] = '/';
	memcpy(path + length + 1, name, rest + 1);
	return path;
}

static void pin(int fd, const char *folder, const char *name)
{
	union bpf_request request = {.object = {.path = (unsigned long)path_in(folder, name), .fd = fd}};

	checked(bpf(BPF_OBJ_PIN, &request, sizeof(request.object)), "cannot pin ", name);
}

static int pinned(const char *folder, const char *name)
{
	union bpf_request request = {.object = {.path = (unsigned long)path_in(folder, name)}};

	return checked(bpf(BPF_OBJ_GET, &request, sizeof(request.object)), "cannot open ", path_in(folder, name));
}

static int make_map(const char *folder, const char *name, uint32_t type, uint32_t key, uint32_t value, uint32_t entries)
{
	union bpf_request request = {.map = {type, key, value, entries, 0}};
	int fd = checked(bpf(BPF_MAP_CREATE, &request, sizeof(request.map)), "cannot make the map ", name);

	pin(fd, folder, name);
	return fd;
}

static int make_counts(const char *folder, uint32_t type)
{
	return make_map(folder, "counts", type, 4, 8, SLOTS);
}

// --- places ------------------------------------------------------------------------------------------

struct place {
	const char *link, *target;
	unsigned long address;		// of the target, where it is no name
	long offset, semaphore, flags;
	uint32_t type, attach_type;	// the program's
	enum context context;
	uint32_t words;
	struct btf_function function;
};

static int is_linked(const struct place *place, const char *link)
{
	return text_equal(place->link, link);
}

static int is_in_program(const struct place *place)
{
	return is_linked(place, "uprobe") || is_linked(place, "places");
}

static long number(const char *word)
{
	return checked(parse_number(word), "no number: ", word);
}

// 0 for a name.
static unsigned long address_of(const char *target)
{
	unsigned long address = 0;

	if (target[0] != '0' || target[1] != 'x')
		return 0;
	for (const char *at = target + 2; *at; at++) {
		if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f')))
			fail("no address: ", target, 0);
		address = address << 4 | (unsigned long)(*at <= '9' ? *at - '0' : *at - 'a' + 10);
	}
	return address;
}

static struct place place_of(char **given)
{
	struct place place = {
		.type = number(given[0]), .attach_type = number(given[1]), .link = given[2],
		.flags = number(given[3]), .context = number(given[4]), .target = given[5],
		.offset = number(given[6]), .semaphore = number(given[7]), .address = address_of(given[5]), .words = 1,
	};

	if (is_linked(&place, "trampoline") || is_linked(&place, "functions")) {
		checked(find_function(place.target, &place.function), "no type information about ", place.target);
		place.words = place.function.arguments;
	} else if (is_linked(&place, "typed")) {
		checked(find_tracepoint(place.target, &place.function), "no type information about ", place.target);
		place.words = place.function.arguments;
	}
	return place;
}

static long probe_type(const char *path)
{
	char text[16] = "";
	long fd = checked(sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0), "this kernel has no such perf events: ", path);
	long size = sys3(SYS_read, fd, text, sizeof(text) - 1);

	sys1(SYS_close, fd);
	if (size > 0)
		text[size - 1] = 0;
	return checked(parse_number(text), "no number of a type: ", path);
}

static int open_event(const struct place *place)
{
	struct event_request event = {.size = sizeof(event)};

	if (is_linked(place, "tracepoint")) {
		event.type = PERF_TYPE_TRACEPOINT;
		event.config = checked(parse_number(place->target), "no tracepoint's number: ", place->target);
	} else {
		event.type = probe_type(is_linked(place, "uprobe") ? "/sys/bus/event_source/devices/uprobe/type" :
							       "/sys/bus/event_source/devices/kprobe/type");
		event.config = place->flags;
		event.config |= (aligned_u64)place->semaphore << SEMAPHORE_SHIFT;
		event.config1 = place->address ? 0 : (unsigned long)place->target;
		event.config2 = place->address ?: (unsigned long)place->offset;
	}
	return checked(sys5(SYS_perf_event_open, &event, -1, 0, -1, PERF_FLAG_FD_CLOEXEC), "cannot probe ",
		       place->target);
}

static int link_to(const struct place *place, int program)
{
	union bpf_request request = {0};
	aligned_u64 symbol = (unsigned long)place->target;
	unsigned long native = symbol;

	if (is_linked(place, "trampoline") || is_linked(place, "typed") || is_linked(place, "raw")) {
		request.raw.name = is_linked(place, "raw") ? (unsigned long)place->target : 0;
		request.raw.program = program;
		return checked(bpf(BPF_RAW_TRACEPOINT_OPEN, &request, sizeof(request.raw)), "cannot attach to ",
			       place->target);
	}
	request.link.program = program;
	request.link.type = place->attach_type;
	if (is_linked(place, "multi")) {
		request.link.multi.flags = place->flags;
		request.link.multi.count = 1;
		if (place->address)
			request.link.multi.addresses = (unsigned long)&place->address;
		else
			request.link.multi.symbols = (unsigned long)&native;
	} else if (is_linked(place, "functions")) {
		request.link.functions.ids = (unsigned long)&place->function.id;
		request.link.functions.count = 1;
	} else if (is_linked(place, "places")) {
		request.link.places.path = symbol;
		request.link.places.offsets = (unsigned long)&place->offset;
		request.link.places.semaphores = place->semaphore ? (unsigned long)&place->semaphore : 0;
		request.link.places.count = 1;
		request.link.places.flags = place->flags;
	} else {
		request.link.type = BPF_PERF_EVENT;
		request.link.target = open_event(place);
	}
	return checked(bpf(BPF_LINK_CREATE, &request, sizeof(request.link)), "cannot attach to ", place->target);
}

// --- programs ----------------------------------------------------------------------------------------

static int load(const struct place *place, const struct instruction *instructions, uint32_t count)
{
	union bpf_request request = {
		.program = {
			.type = place->type, .count = count, .instructions = (unsigned long)instructions,
			.license = (unsigned long)"GPL", .log_level = 1, .log_size = LOG_SIZE,
			.log = (unsigned long)verifier_words, .name = "lab",
			// A link to many functions has their names.
			.attach_type = place->attach_type,
			.btf_id = is_linked(place, "functions") ? 0 : place->function.id,
		},
	};
	long fd = bpf(BPF_PROG_LOAD, &request, sizeof(request.program));

	if (fd < 0) {
		print(2, verifier_words);
		fail("the kernel refuses the program", "", fd);
	}
	return fd;
}

static int attach(const char *folder, const char *wanted, const struct place *place)
{
	struct instruction instructions[MOST_INSTRUCTIONS];
	uint32_t count = 0;
	int program;

	if (text_equal(wanted, "noop")) {
		count = write_noop(instructions);
	} else if (text_equal(wanted, "count")) {
		count = write_count(instructions, make_counts(folder, BPF_MAP_TYPE_PERCPU_ARRAY));
	} else if (text_equal(wanted, "count-shared")) {
		count = write_count_shared(instructions, make_counts(folder, BPF_MAP_TYPE_ARRAY));
	} else if (text_equal(wanted, "record") || text_equal(wanted, "stack")) {
		int counts = make_counts(folder, BPF_MAP_TYPE_PERCPU_ARRAY);
		int ring = make_map(folder, "ring", BPF_MAP_TYPE_RINGBUF, 0, 0, RING_SIZE);

		if (text_equal(wanted, "record"))
			count = write_record(instructions, ring, counts, place->context, place->words);
		else
			count = write_stack(instructions, ring, counts, place->context, place->words,
					    make_map(folder, "stacks", BPF_MAP_TYPE_STACK_TRACE, 4,
						     MOST_FRAMES * sizeof(uint64_t), MOST_STACKS),
					    BPF_F_REUSE_STACKID | (is_in_program(place) ? BPF_F_USER_STACK : 0));
	} else if (text_equal(wanted, "witness")) {
		count = write_witness(instructions, make_map(folder, "hits", BPF_MAP_TYPE_HASH, 4, 8, MOST_THREADS));
	} else {
		fail("no such program: ", wanted, 0);
	}
	program = load(place, instructions, count);
	pin(program, folder, "program");
	pin(link_to(place, program), folder, "link");
	return 0;
}

// --- what was pinned ---------------------------------------------------------------------------------

static int show_info(const char *folder)
{
	uint64_t code = 0;
	struct program_info info = {.symbols = 1, .symbol_addresses = (unsigned long)&code};
	union bpf_request request = {.info = {pinned(folder, "program"), sizeof(info), (unsigned long)&info}};

	checked(bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)), "nothing is known of the program", "");
	print_value("id=", info.id);
	print_value(" jited=", info.jited_size);
	print_value(" code=", code);
	print_value(" runs=", info.runs);
	print_value(" missed=", info.recursion_misses);
	print_value(" translated=", info.translated_size);
	print_value(" verified=", info.verified);
	print(1, "\n");
	return 0;
}

static long element(int command, int map, const void *key, void *value)
{
	union bpf_request request = {.element = {map, (unsigned long)key, (unsigned long)value, 0}};

	return bpf(command, &request, sizeof(request.element));
}

static uint64_t sum_of(int map, uint32_t slot)
{
	static uint64_t values[MOST_CPUS];
	uint64_t sum = 0;

	checked(element(BPF_MAP_LOOKUP_ELEM, map, &slot, values), "cannot read the counts", "");
	for (int cpu = 0; cpu < MOST_CPUS; cpu++)
		sum += values[cpu];
	return sum;
}

static int show_counts(const char *folder)
{
	int map = pinned(folder, "counts");

	print_value("count=", sum_of(map, COUNTS));
	print_value(" dropped=", sum_of(map, DROPPED));
	print(1, "\n");
	return 0;
}

static int show_hits(const char *folder)
{
	int map = pinned(folder, "hits");
	uint32_t pid = 0, *before = NULL;
	uint64_t hits;

	for (int i = 0; i < MOST_THREADS && element(BPF_MAP_GET_NEXT_KEY, map, before, &pid) == 0; i++, before = &pid) {
		checked(element(BPF_MAP_LOOKUP_ELEM, map, &pid, &hits), "cannot read the hits", "");
		print_number(1, pid);
		print_value(" ", hits);
		print(1, "\n");
	}
	return 0;
}

struct ring {
	volatile unsigned long *consumed;
	const volatile unsigned long *produced;
	const char *data;	// mapped twice in a row, so that no event is split
};

static struct ring ring_of(const char *folder)
{
	int fd = pinned(folder, "ring");
	void *mine = map_memory(fd, PAGE, 0, PROT_READ | PROT_WRITE, MAP_SHARED);
	char *theirs = map_memory(fd, PAGE + 2 * RING_SIZE, PAGE, PROT_READ, MAP_SHARED);

	if (is_error(mine) || is_error(theirs))
		fail("cannot map the ring", "", is_error(mine) ? (long)mine : (long)theirs);
	return (struct ring){mine, (void *)theirs, theirs + PAGE};
}

// Writing is a system call, which may be what the program records: few at a time, and only what is there at first.
static int show_events(const char *folder)
{
	static char events[EVENTS_AT_ONCE * EVENT_SIZE];
	struct ring ring = ring_of(folder);
	const unsigned long end = *ring.produced;
	size_t held = 0;

	for (unsigned long at = *ring.consumed; at != end; at += RING_HEADER + EVENT_SIZE) {
		const volatile uint32_t *header = (const void *)(ring.data + (at & (RING_SIZE - 1)));

		if (*header != EVENT_SIZE)	// with a mark where it is being written, or was thrown away
			fail("the ring has something else than events", "", 0);
		memcpy(events + held, (const char *)header + RING_HEADER, EVENT_SIZE);
		held += EVENT_SIZE;
		if (held == sizeof(events) || at + RING_HEADER + EVENT_SIZE == end) {
			checked(write_all(1, events, held), "cannot write", "");
			held = 0;
		}
	}
	return 0;
}

static int show_stack(const char *folder, const char *wanted)
{
	static uint64_t addresses[MOST_FRAMES];
	uint32_t number = (uint32_t)checked(parse_number(wanted), "no number: ", wanted);

	checked(element(BPF_MAP_LOOKUP_ELEM, pinned(folder, "stacks"), &number, addresses), "no such stack: ", wanted);
	for (int i = 0; i < MOST_FRAMES && addresses[i]; i++) {
		print_number(1, addresses[i]);
		print(1, "\n");
	}
	return 0;
}

static int empty(const char *folder)
{
	static uint64_t zeros[MOST_CPUS];
	int map = pinned(folder, "counts");
	struct ring ring;

	// Pinned objects are opened by bpf(2) only; this error means that there is no ring.
	if (sys3(SYS_open, path_in(folder, "ring"), O_RDONLY, 0) != -E_NOENT) {
		ring = ring_of(folder);
		*ring.consumed = *ring.produced;
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		checked(element(BPF_MAP_UPDATE_ELEM, map, &slot, zeros), "cannot empty the counts", "");
	return 0;
}

// Goes on in the background as a process of its own, for which the caller's waits until it is `ready`.
static int fork_background(int ready[2])
{
	char answer = 0;

	checked(sys2(SYS_pipe2, ready, O_CLOEXEC), "no pipe", "");
	if (!checked(sys0(SYS_fork), "cannot fork", ""))
		return 1;
	sys1(SYS_close, ready[1]);
	exit_program(sys3(SYS_read, ready[0], &answer, 1) != 1);
}

// Behind the number that the caller is told: no file of the caller's is open any more.
static void be_background(const int ready[2], const char *name, uint64_t number)
{
	const char answer = 0;

	print_value(name, number);
	print(1, "\n");
	sys3(SYS_write, ready[1], &answer, 1);
	for (int file = 0; file <= 2; file++)
		sys1(SYS_close, file);
}

// A process makes room, and waits until something is written to GO: it has what it knows of the maps.
static int try_maps(const char *who, const char *go, const char *said, char **folders)
{
	int ready[2], tried;
	char answer = 0;
	long fd;

	for (; *folders; folders++)
		checked(watch_maps(pinned(*folders, "program")), "nothing is known of the program ", *folders);
	fork_background(ready);
	tried = make_room(text_equal(who, "attended"));
	be_background(ready, "", (uint64_t)tried);
	if (!tried)
		return 0;
	fd = sys3(SYS_open, go, O_RDONLY | O_CLOEXEC, 0);
	sys3(SYS_read, fd, &answer, 1);
	fd = sys3(SYS_open, said, O_WRONLY | O_CLOEXEC, 0);
	show_trial((int)fd);
	return 0;
}

static void make_pipe(const char *folder, const char *name)
{
	const char *path = path_in(folder, name);

	sys1(SYS_unlink, path);	// of a reader that was killed
	checked(sys3(SYS_mknod, path, FIFO, 0), "cannot make the pipe ", path);
}

// Perf events have their pages in this process alone (VM_DONTCOPY), and end with it.
static int read_maps(const char *pipes, const char *folder)
{
	int ready[2], count;

	fork_background(ready);
	count = open_readers(folder);
	sys2(SYS_mkdir, pipes, FOLDER_MODE);
	make_pipe(pipes, "go");
	make_pipe(pipes, "said");
	print_value("reads ", (uint64_t)count);
	print_value(" ", (uint64_t)opened_events());
	be_background(ready, " ", (uint64_t)sys0(SYS_setsid));
	for (char command = count ? 0 : 'e'; command != 'e';) {
		long fd = sys3(SYS_open, path_in(pipes, "go"), O_RDONLY | O_CLOEXEC, 0);

		command = 0;
		sys3(SYS_read, fd, &command, 1);
		sys1(SYS_close, fd);
		fd = sys3(SYS_open, path_in(pipes, "said"), O_WRONLY | O_CLOEXEC, 0);
		if (command == 't')
			begin_reading();
		else if (command == 'f')
			fill_buffers();
		else if (command == 's')
			show_read((int)fd);
		sys1(SYS_close, fd);
	}
	return 0;
}

// --- what others have loaded -------------------------------------------------------------------------

static long open_program(const char *id)
{
	return program_by_id((uint32_t)checked(parse_number(id), "no program's number: ", id));
}

static void wait_until_gone(const char *id)
{
	const long pause[2] = {0, PAUSE_NS};

	for (int i = 0; i < TRIES; i++) {
		long fd = open_program(id);

		if (fd < 0)
			return;
		sys1(SYS_close, fd);
		sys2(SYS_nanosleep, pause, NULL);
	}
	fail("the kernel still has the program ", id, 0);
}

static void hold(const char *folder)
{
	const long pause[2] = {3600, 0};

	pinned(folder, "link");
	for (;;)
		sys2(SYS_nanosleep, pause, NULL);
}

int program(int argc, char **argv, char **environment)
{
	const char *command = argc > 2 ? argv[1] : "";

	if (text_equal(command, "attach") && argc == 12) {
		struct place place = place_of(argv + 4);

		return attach(argv[2], argv[3], &place);
	}
	if (text_equal(command, "info") && argc == 3)
		return show_info(argv[2]);
	if (text_equal(command, "counts") && argc == 3)
		return show_counts(argv[2]);
	if (text_equal(command, "hits") && argc == 3)
		return show_hits(argv[2]);
	if (text_equal(command, "events") && argc == 3)
		return show_events(argv[2]);
	if (text_equal(command, "stack") && argc == 4)
		return show_stack(argv[2], argv[3]);
	if (text_equal(command, "empty") && argc == 3)
		return empty(argv[2]);
	if (text_equal(command, "try") && argc > 5)
		return try_maps(argv[2], argv[3], argv[4], argv + 5);
	if (text_equal(command, "read") && argc == 4)
		return read_maps(argv[2], argv[3]);
	if (text_equal(command, "hold") && argc == 3)
		hold(argv[2]);
	if (text_equal(command, "attached") && argc == 3) {
		checked(show_attached(checked(parse_number(argv[2]), "no process: ", argv[2])), "no process ", argv[2]);
		return 0;
	}
	if (text_equal(command, "loaded") && argc == 3) {
		checked(show_loaded(checked(parse_number(argv[2]), "no process: ", argv[2])), "no process ", argv[2]);
		return 0;
	}
	if (text_equal(command, "rest") && argc == 3) {
		print(1, wait_until_rest(checked(parse_number(argv[2]), "no process: ", argv[2])));
		print(1, "\n");
		return 0;
	}
	if (text_equal(command, "signal") && argc == 4) {
		long group = checked(parse_number(argv[2]), "no process: ", argv[2]);

		checked(sys2(SYS_kill, -group, parse_number(argv[3])), "no process group ", argv[2]);
		return 0;
	}
	if (text_equal(command, "session") && argc == 3) {
		show_session(checked(parse_number(argv[2]), "no process: ", argv[2]));
		return 0;
	}
	if (text_equal(command, "rings") && argc == 3) {
		checked(show_rings(checked(parse_number(argv[2]), "no process: ", argv[2])), "no process ", argv[2]);
		return 0;
	}
	if (text_equal(command, "start") && argc > 4) {
		long bytes = checked(parse_number(argv[3]), "no size: ", argv[3]);

		print_number(1, checked(start_in_background(argv[2], bytes, argv + 4, environment), "cannot fork", ""));
		print(1, "\n");
		return 0;
	}
	if (text_equal(command, "pin") && argc == 4) {
		pin(checked(open_program(argv[3]), "the kernel has no program ", argv[3]), argv[2], "program");
		return 0;
	}
	if (text_equal(command, "gone")) {
		for (int i = 2; i < argc; i++)
			wait_until_gone(argv[i]);
		return 0;
	}
	fail("one of attach, info, counts, hits, events, stack, empty, try, read, hold, attached, loaded, rings, start, rest, session, signal, pin, gone", "", 0);
}
