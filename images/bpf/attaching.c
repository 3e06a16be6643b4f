// SPDX-License-Identifier: GPL-2.0-only
// See attaching.h.
#include "attaching.h"
#include "commands.h"
#include "kernel_text.h"
#include "lists.h"
#include "programs.h"

enum { RLIMIT_NOFILE = 7, MOST_CPUS = 1024, LINE = 512, WRONG_ID = 1, WRONG_PLACE = 1 << 30, E_TIMEDOUT = 110 };
enum { BPF_PROG_TYPE_KPROBE = 2, BPF_PROG_TYPE_TRACING = 26 };
enum { BPF_TRACE_FENTRY = 24, BPF_TRACE_FENTRY_MULTI = 59, BPF_TRACE_FEXIT_MULTI = 60 };

static const char module[] = "/sys/module/lab_attach/parameters/do";
static const char patching[] = "/sys/module/lab_livepatch/parameters/do", users[] = "/sys/module/lab_livepatch/refcnt";
static const char enabled[] = "/sys/kernel/livepatch/lab_livepatch/enabled";
static const char transition[] = "/sys/kernel/livepatch/lab_livepatch/transition";
static const char patch_sites[] = "/sys/kernel/debug/lab_livepatch/sites";
static const char hits_file[] = "/sys/module/lab_attach/parameters/result";
static const char sites[] = "/sys/kernel/debug/lab_attach/sites", events[] = "/sys/kernel/tracing/kprobe_events";
static const char enable_all[] = "/sys/kernel/tracing/events/lab/enable";
static const char profile[] = "/sys/kernel/tracing/kprobe_profile";
static const char self[] = "/proc/self/exe";
static const char hooked[] = "/sys/kernel/tracing/enabled_functions", probed[] = "/sys/kernel/debug/kprobes/list";

__asm__(".pushsection .text\n.balign 4096\n.globl places\nplaces:\n.rept 50000\nnop\nret\n.endr\n.popsection");

static const struct mechanism mechanisms[] = {
	{"kprobes", NOT_IN_BLACKLIST, probed, 0, 0},
	{"kprobe-array", NOT_IN_BLACKLIST, probed, 0, 0},
	{"ftrace", ANY, hooked, 0, 0},
	{"fprobe", ANY, hooked, 0, 0},
	{"livepatch", UNIQUE | ON_NO_STACK, hooked, 0, 0},
	{"kprobe-events", NOT_IN_BLACKLIST, probed, 0, 0},
	{"kprobe-multi", ANY, hooked, BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI},
	{"fentry", TYPED, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY},
	{"fentry-multi", TYPED, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY_MULTI},
	{"fexit-multi", TYPED | RETURNS, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT_MULTI},
	{"uprobe-multi", ANY, NULL, BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_MULTI},
};

const struct mechanism *mechanism;
struct functions functions;
int wrong_name;

static int program_fd, counts_fd;
static uint64_t places_offset;
static aligned_u64 *words;		// addresses, names or offsets for the kernel
static uint32_t *ids, attached_count;
static int *links, *programs;

static int is(const char *name)
{
	return text_equal(mechanism->name, name);
}

static long tell_module(const char *command, uint32_t count)
{
	char line[64];

	put_number(put(put(line, command), " "), count, 10);
	return write_to(is("livepatch") ? patching : module, line, text_length(line), 0);
}

static int is_of_module(void)
{
	return !mechanism->type && !is("kprobe-events");
}

static void *new_room(size_t size)
{
	void *room = room_for(size);

	checked(is_error(room) ? (long)room : 0, "no memory", "");
	return room;
}

static int load(uint32_t btf_id)
{
	static char log[1 << 16];
	struct instruction instructions[MOST_INSTRUCTIONS];
	union bpf_request request = {
		.program = {
			.type = mechanism->type, .count = write_count(instructions, counts_fd),
			.instructions = (unsigned long)instructions, .license = (unsigned long)"GPL", .log_level = 1,
			.log_size = sizeof(log), .log = (unsigned long)log, .name = "lab",
			.attach_type = mechanism->attach_type, .btf_id = btf_id,
		},
	};

	return (int)bpf(BPF_PROG_LOAD, &request, sizeof(request.program));
}

static long attach_link(uint32_t count)
{
	union bpf_request request = {.link = {.program = (uint32_t)program_fd, .type = mechanism->attach_type}};
	long fd;

	if (is("kprobe-multi")) {
		request.link.multi.count = count;
		if (wrong_name)
			request.link.multi.symbols = (unsigned long)words;
		else
			request.link.multi.addresses = (unsigned long)words;
	} else if (is("uprobe-multi")) {
		request.link.places.path = (unsigned long)self;
		request.link.places.offsets = (unsigned long)words;
		request.link.places.count = count;
	} else {
		request.link.functions.ids = (unsigned long)ids;
		request.link.functions.count = count;
	}
	fd = bpf(BPF_LINK_CREATE, &request, sizeof(request.link));
	links[0] = (int)fd;
	return fd < 0 ? fd : 0;
}

static void detach_fentry(uint32_t count)
{
	while (count--) {
		sys1(SYS_close, links[count]);
		sys1(SYS_close, programs[count]);
	}
}

static long attach_fentry(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		union bpf_request request = {0};
		long fd = programs[i] = load(ids[i]);

		if (fd >= 0) {
			request.raw.program = (uint32_t)fd;
			fd = links[i] = (int)bpf(BPF_RAW_TRACEPOINT_OPEN, &request, sizeof(request.raw));
			if (fd < 0)
				sys1(SYS_close, programs[i]);
		}
		if (fd < 0) {
			detach_fentry(i);
			return fd;
		}
	}
	return 0;
}

static long write_event(int fd, uint32_t number, int removes)
{
	char line[LINE], *end = put_number(put(line, removes ? "-:lab/p" : "p:lab/p"), number, 10);

	if (!removes) {
		end = put(end, " ");
		if (wrong_name && number == attached_count / 2)
			end = put(end, "lab_no_such_function");
		else
			end = put_number(put(end, "0x"), functions.all[number].address, 16);
	}
	end = put(end, "\n");
	return write_all(fd, line, (size_t)(end - line));
}

static long detach_events(uint32_t count)
{
	long fd, error = count ? write_to(enable_all, "0", 1, 0) : 0;

	fd = checked(sys3(SYS_open, events, O_WRONLY | O_CLOEXEC | 02000, 0), "cannot open ", events);	// O_APPEND
	while (count--)
		error = write_event((int)fd, count, 1) ?: error;
	sys1(SYS_close, fd);
	return error;
}

static long attach_events(uint32_t count)
{
	long fd = checked(sys3(SYS_open, events, O_WRONLY | O_CLOEXEC | 02000, 0), "cannot open ", events), error = 0;
	uint32_t made = 0;

	while (!error && made < count)
		error = write_event((int)fd, made++, 0);
	sys1(SYS_close, fd);
	if (error)
		made--;
	else
		error = write_to(enable_all, "1", 1, 0);
	if (error)
		detach_events(made);
	return error;
}

// Tasks that have not got there are looked at again each second, and woken after fifteen.
static long wait_for_zero(const char *path)
{
	static const long a_while[2] = {0, 10000000};
	long number;

	for (int tries = 6000; (number = sum_column(path, 0)) > 0; tries--) {
		if (!tries)
			return -E_TIMEDOUT;
		sys2(SYS_nanosleep, a_while, NULL);
	}
	return number;
}

static long disable_patch(void)
{
	long error = write_to(enabled, "0", 1, 0);

	return error ?: wait_for_zero(users);
}

static long enable_patch(uint32_t count)
{
	long error = tell_module("livepatch", count);

	if (error)
		return error;
	error = wait_for_zero(transition);
	if (error)
		disable_patch();
	return error;
}

long attach(uint32_t count)
{
	if (is("livepatch"))
		return enable_patch(count);
	if (is("kprobe-events"))
		return attach_events(count);
	if (is("fentry"))
		return attach_fentry(count);
	if (mechanism->type)
		return attach_link(count);
	return tell_module(mechanism->name, count);
}

long detach(void)
{
	if (is("livepatch"))
		return disable_patch();
	if (is("kprobe-events"))
		return detach_events(attached_count);
	if (is("fentry"))
		detach_fentry(attached_count);
	else if (mechanism->type)
		return sys1(SYS_close, links[0]);
	else
		return tell_module("detach", 0);
	return 0;
}

void call_target(uint32_t calls)
{
	while (calls--) {
		if (is("uprobe-multi"))
			places();
		else
			sys1(SYS_getpgid, 0);
	}
}

int counts_hits(void)
{
	return !is("livepatch");
}

uint64_t hits_now(void)
{
	static uint64_t values[MOST_CPUS];
	uint32_t slot = COUNTS;
	union bpf_request request = {.element = {(uint32_t)counts_fd, (unsigned long)&slot, (unsigned long)values, 0}};
	uint64_t sum = 0;

	if (is("kprobe-events"))
		return (uint64_t)checked(sum_column(profile, 1), "cannot read ", profile);
	if (!counts_hits())
		return 0;
	if (!mechanism->type)
		return (uint64_t)checked(sum_column(hits_file, 0), "cannot read ", hits_file);
	checked(bpf(BPF_MAP_LOOKUP_ELEM, &request, sizeof(request.element)), "cannot read the counts", "");
	for (int cpu = 0; cpu < MOST_CPUS; cpu++)
		sum += values[cpu];
	return sum;
}

uint64_t listed(void)
{
	uint64_t armed = 0;

	if (mechanism->list)
		return (uint64_t)checked(count_lines(mechanism->list), "cannot read ", mechanism->list);
	for (size_t i = 0; i < PLACES; i++)
		armed += *((const volatile unsigned char *)places + i * PLACE_SIZE) == 0xcc;
	return armed;
}

// No place of the mechanism. The tracer takes each byte of a function's call for its place, but traces no first byte of
// the text; a kprobe is refused in the middle of the call.
static unsigned long wrong_address(uint32_t i)
{
	return is("ftrace") || is("fprobe") ? functions.text_start : functions.all[i].address + 1;
}

void give_functions(uint32_t largest)
{
	unsigned long *addresses;
	const char *path;

	if (!is_of_module())
		return;
	addresses = new_room(largest * sizeof(*addresses));
	// With the wrong one: the module gets them once.
	for (uint32_t i = 0; i < largest; i++)
		addresses[i] = wrong_name && i == largest / 2 ? wrong_address(i) : functions.all[i].address;
	path = is("livepatch") ? patch_sites : sites;
	checked(write_to(path, (const char *)addresses, largest * sizeof(*addresses), 0), "the module refuses ", path);
}

static void prepare_program(void)
{
	union bpf_request request = {.map = {BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, SLOTS, 0}};
	// Open files: two for each function.
	static const uint64_t many[2] = {1 << 18, 1 << 18};

	sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, many, NULL);
	counts_fd = (int)checked(bpf(BPF_MAP_CREATE, &request, sizeof(request.map)), "cannot make a map", "");
	if (!is("fentry"))
		program_fd = (int)checked(load(0), "the kernel refuses the program", "");
}

void choose_mechanism(const char *name, uint32_t seed)
{
	size_t room;

	for (size_t i = 0; i < sizeof(mechanisms) / sizeof(*mechanisms); i++)
		if (text_equal(name, mechanisms[i].name))
			mechanism = &mechanisms[i];
	if (!mechanism)
		fail("no such mechanism: ", name, 0);
	checked(read_functions(&functions, mechanism->demands, "__x64_sys_getpgid", seed),
		"cannot read the kernel's functions", "");
	if (!mechanism->list) {
		functions.count = PLACES;
		places_offset = (uint64_t)checked(offset_in(self, (unsigned long)places, PLACES * PLACE_SIZE),
						  "the places are not in ", self);
	}
	room = functions.count * sizeof(*words);
	words = new_room(room);
	ids = new_room(room);
	links = new_room(room);
	programs = new_room(room);
	if (mechanism->type)
		prepare_program();
}

void prepare(uint32_t count)
{
	attached_count = count;
	for (uint32_t i = 0; i < count; i++) {
		const int is_wrong = wrong_name && i == count / 2;

		ids[i] = is_wrong ? WRONG_ID : functions.all[i].id;
		if (is("uprobe-multi"))
			words[i] = places_offset + (uint64_t)i * PLACE_SIZE + is_wrong * WRONG_PLACE;
		else if (is("kprobe-multi") && wrong_name)
			words[i] = (unsigned long)(is_wrong ? "lab_no_such_function" : functions.all[i].name);
		else
			words[i] = functions.all[i].address;
	}
	if (is_of_module())
		checked(tell_module("prepare", count), "the module has no room", "");
}
