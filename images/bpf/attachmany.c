// SPDX-License-Identifier: GPL-2.0-only
// What does it cost to attach to many functions, and to detach? One mechanism, with one number of functions after the
// other, 0 for all that there are; the first of them is always the target, a system call that this program makes.
//
//   attachmany MECHANISM SEED FAULT COUNT...
//   MECHANISM: kprobes, kprobe-array, ftrace, fprobe (by the module lab_attach), events (of tracefs),
//              kprobe-multi, fentry, fentry-multi, fexit-multi, uprobe-multi (BPF programs that count)
//   FAULT: none; name, one of the functions is none, in the middle; memory, hardly any is left
//
// Output, a line for each step of each number; times in nanoseconds, ticks of the TSC between two marks (region.h),
// memory in KiB, calls and hits as they were counted, the rest as numbers of lines or of bytes:
//   functions: all=N own=0|1 target=ADDRESS
//   bare COUNT: listed=N slab=KIB vmalloc=KIB percpu=KIB ticks=T     of some calls of the target
//   attach COUNT: wanted=N error=ERRNO signal=NUMBER ns=T ticks=T
//   while COUNT: listed=N changed=BYTES slab=KIB vmalloc=KIB percpu=KIB calls=N hits=N ticks=T before=HEX live=HEX
//   detach COUNT: error=ERRNO ns=T ticks=T
//   after COUNT: listed=N changed=BYTES slab=KIB vmalloc=KIB percpu=KIB
// ticks in while: of as many calls as in bare, with these hits.
// signal: what ended the process that attaches, where memory is short. Where attaching fails there is no while and no
// detach.
#include "bpf_abi.h"
#include "functions.h"
#include "programs.h"
#include "region_clock.h"

enum { CLOCK_MONOTONIC = 1, RLIMIT_NOFILE = 7, MOST_CPUS = 1024 };
enum { WARM_UP = 100, BATCHES = 5, CALLS = 50, LOOKED_AT = 5, SETTLES = 100 };
enum { PLACES = 50000, PLACE_SIZE = 2, LINE = 512, WRONG_ID = 1, WRONG_PLACE = 1 << 30 };
enum { BPF_PROG_TYPE_KPROBE = 2, BPF_PROG_TYPE_TRACING = 26 };
enum { BPF_TRACE_FENTRY = 24, BPF_TRACE_FENTRY_MULTI = 59, BPF_TRACE_FEXIT_MULTI = 60 };

static const char module[] = "/sys/module/lab_attach/parameters/do";
static const char hits_file[] = "/sys/module/lab_attach/parameters/result";
static const char sites[] = "/sys/kernel/debug/lab_attach/sites", events[] = "/sys/kernel/tracing/kprobe_events";
static const char enable_all[] = "/sys/kernel/tracing/events/lab/enable";
static const char profile[] = "/sys/kernel/tracing/kprobe_profile";
static const char hooked[] = "/sys/kernel/tracing/enabled_functions", probed[] = "/sys/kernel/debug/kprobes/list";

// So many functions of this program.
void places(void);
__asm__(".pushsection .text\n.balign 4096\n.globl places\nplaces:\n.rept 50000\nnop\nret\n.endr\n.popsection");

struct mechanism {
	const char *name;
	int demands;
	const char *list;		// has a line for each function that is attached; NULL for those of this program
	uint32_t type, attach_type;	// of its BPF program; 0 for none
};

static const struct mechanism mechanisms[] = {
	{"kprobes", NOT_IN_BLACKLIST, probed, 0, 0},
	{"kprobe-array", NOT_IN_BLACKLIST, probed, 0, 0},
	{"ftrace", ANY, hooked, 0, 0},
	{"fprobe", ANY, hooked, 0, 0},
	{"kprobe-events", NOT_IN_BLACKLIST, probed, 0, 0},
	{"kprobe-multi", ANY, hooked, BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI},
	{"fentry", TYPED, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY},
	{"fentry-multi", TYPED, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY_MULTI},
	{"fexit-multi", TYPED | RETURNS, hooked, BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT_MULTI},
	{"uprobe-multi", ANY, NULL, BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_MULTI},
};

static const struct mechanism *mechanism;
static struct functions functions;
static int wrong_name, starves, program_fd, counts_fd, core_fd;
static uint64_t core_offset, places_offset;
static char *text_before, *text_now;
static aligned_u64 *words;		// addresses, names or offsets for the kernel
static uint32_t *ids, attached_count;
static int *links, *programs;

static void fail(const char *what, const char *about, long error) __attribute__((noreturn));
static void fail(const char *what, const char *about, long error)
{
	print(1, "attachmany: ");
	print(1, what);
	print(1, about);
	print(1, ": error ");
	print_number(1, (uint64_t)-error);
	print(1, "\n");
	exit_program(1);
}

static long checked(long result, const char *what, const char *about)
{
	if (result < 0)
		fail(what, about, result);
	return result;
}

static void *room_for(size_t size)
{
	void *room = map_memory(-1, size, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);

	checked(is_error(room) ? (long)room : 0, "no memory", "");
	return room;
}

static int is(const char *name)
{
	return text_equal(mechanism->name, name);
}

// --- small texts -------------------------------------------------------------------------------------

static char *put(char *to, const char *text)
{
	size_t length = text_length(text);

	memcpy(to, text, length + 1);
	return to + length;
}

static char *put_number(char *to, uint64_t value, uint32_t base)
{
	char digits[24];
	size_t at = sizeof(digits);

	digits[--at] = 0;
	do {
		uint32_t digit;

		value = divide(value, base, &digit);
		digits[--at] = "0123456789abcdef"[digit];
	} while (value);
	return put(to, digits + at);
}

static long write_to(const char *path, const char *text, size_t size, int flags)
{
	long fd = sys3(SYS_open, path, O_WRONLY | O_CLOEXEC | flags, 0), error;

	if (fd < 0)
		return fd;
	error = write_all((int)fd, text, size);
	sys1(SYS_close, fd);
	return error;
}

static long tell_module(const char *command, uint32_t count)
{
	char line[64];

	put_number(put(put(line, command), " "), count, 10);
	return write_to(module, line, text_length(line), 0);
}

// The sum of the numbers in one column of a file, counted from 0, of lines with a word in the first.
static uint64_t sum_in(const char *path, int column)
{
	static char *text;
	enum { ROOM = 16 << 20 };
	uint64_t sum = 0;
	long size;
	int at = 0, was_space = 1;

	text = text ?: room_for(ROOM);
	size = checked(file_content(path, text, ROOM - 1), "cannot read ", path);
	text[size] = 0;
	for (const char *c = text; *c; c++) {
		const int is_space = *c == ' ' || *c == '\t' || *c == '\n';

		if (!is_space && was_space && at++ == column) {
			uint64_t value = 0;

			for (const char *digit = c; *digit >= '0' && *digit <= '9'; digit++)
				value = value * 10 + (uint64_t)(*digit - '0');
			sum += value;
		}
		if (*c == '\n')
			at = 0;
		was_space = is_space;
	}
	return sum;
}

// --- attaching and detaching -------------------------------------------------------------------------

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
		request.link.places.path = (unsigned long)"/proc/self/exe";
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

static long attach(uint32_t count)
{
	if (is("kprobe-events"))
		return attach_events(count);
	if (is("fentry"))
		return attach_fentry(count);
	if (mechanism->type)
		return attach_link(count);
	return tell_module(mechanism->name, count);
}

static long detach(void)
{
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

// --- without memory ----------------------------------------------------------------------------------

// So much is left, of what the kernel does not keep for itself; so much is taken at a time, far from the end and near.
enum { LEFT_KIB = 512, FAR_KIB = 8192, FAR = 1 << 20, NEAR = 1 << 16, MAP_NORESERVE = 0x4000, MADV_DONTFORK = 10 };
static const size_t most = 1UL << 36;

// A value of /proc/meminfo, by its name with the colon.
static uint64_t memory_kib(const char *name)
{
	static char text[8192];
	const size_t length = text_length(name);
	long size = checked(file_content("/proc/meminfo", text, sizeof(text) - 1), "cannot read ", "/proc/meminfo");

	text[size] = 0;
	for (const char *at = text; *at; at++) {
		uint64_t value = 0;
		size_t same = 0;

		while (same < length && at[same] == name[same])
			same++;
		if (same != length || (at > text && at[-1] != '\n'))
			continue;
		for (at += length; *at && *at != '\n'; at++)
			value = *at >= '0' && *at <= '9' ? value * 10 + (uint64_t)(*at - '0') : value;
		return value;
	}
	fail("/proc/meminfo lacks ", name, -E_NOENT);
}

static void set_score(const char *score)
{
	checked(write_to("/proc/self/oom_score_adj", score, text_length(score), 0), "cannot set ", "oom_score_adj");
}

// Attaches in a process of its own, the first that the kernel kills, with all memory taken but a little. What is
// attached must end with its process.
static long attach_starved(uint32_t count, int *signal)
{
	char *taken = map_memory(-1, most, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	static const char levels[] = "/proc/sys/kernel/printk";
	// An errno of the kernel's own does not fit into an exit status.
	long *result = map_memory(-1, sizeof(*result), 0, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
	char usual[64];
	uint64_t left;
	int status = 0;
	long pid, size = checked(file_content(levels, usual, sizeof(usual)), "cannot read ", levels);

	checked(is_error(taken) ? (long)taken : 0, "no memory", "");
	checked(is_error(result) ? (long)result : 0, "no memory", "");
	*result = 0;
	checked(sys3(SYS_madvise, taken, most, MADV_DONTFORK), "cannot keep memory from a process", "");
	set_score("-1000");
	checked(write_to("/proc/sys/vm/min_free_kbytes", "1024", 4, 0), "cannot set ", "min_free_kbytes");
	// That the kernel wants memory is what is asked for here, and no trouble that its console should have.
	checked(write_to(levels, "3", 1, 0), "cannot set ", levels);
	for (size_t at = 0; (left = memory_kib("MemAvailable:")) > LEFT_KIB;) {
		const size_t more = left > FAR_KIB ? FAR : NEAR;

		memset(taken + at, 1, more);
		at += more;
	}
	pid = checked(sys0(SYS_fork), "cannot fork", "");
	if (!pid) {
		set_score("1000");
		*result = attach(count);
		exit_program(0);
	}
	checked(sys4(SYS_wait4, pid, &status, 0, NULL), "lost the process", "");
	sys2(SYS_munmap, taken, most);
	write_to(levels, usual, (size_t)size, 0);
	*signal = status & 0x7f;
	return *result;
}

// --- what is proved ----------------------------------------------------------------------------------

static void call_target(uint32_t calls)
{
	while (calls--) {
		if (is("uprobe-multi"))
			places();
		else
			sys1(SYS_getpgid, 0);
	}
}

static uint64_t hits_now(void)
{
	static uint64_t values[MOST_CPUS];
	uint32_t slot = COUNTS;
	union bpf_request request = {.element = {(uint32_t)counts_fd, (unsigned long)&slot, (unsigned long)values, 0}};
	uint64_t sum = 0;

	if (is("kprobe-events"))
		return sum_in(profile, 1);
	if (!mechanism->type)
		return sum_in(hits_file, 0);
	checked(bpf(BPF_MAP_LOOKUP_ELEM, &request, sizeof(request.element)), "cannot read the counts", "");
	for (int cpu = 0; cpu < MOST_CPUS; cpu++)
		sum += values[cpu];
	return sum;
}

static uint64_t clock_now(void)
{
	int64_t now[2] = {0, 0};

	sys2(SYS_clock_gettime, CLOCK_MONOTONIC, now);
	return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
}

static uint64_t tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

struct calls {
	uint64_t ticks, hits;
};

// The least of some batches, as a timer's tick may be in one: of CALLS calls, without what a batch and reading cost.
static struct calls measure_calls(int counts)
{
	struct calls least[2] = {{-1, -1}, {-1, -1}};

	for (int i = 0; i < 2 * BATCHES; i++) {
		const uint32_t twice = i & 1;
		const uint64_t hits = counts ? hits_now() : 0;
		uint64_t ticks = tsc(), made;

		call_target(CALLS << twice);
		ticks = tsc() - ticks;
		made = counts ? hits_now() - hits : 0;
		least[twice].ticks = ticks < least[twice].ticks ? ticks : least[twice].ticks;
		least[twice].hits = made < least[twice].hits ? made : least[twice].hits;
	}
	return (struct calls){least[1].ticks - least[0].ticks, least[1].hits - least[0].hits};
}

static void read_text(char *to)
{
	const size_t size = functions.text_end - functions.text_start;

	for (size_t at = 0; at < size;) {
		long got = sys4(SYS_pread64, core_fd, to + at, size - at, core_offset + at);

		if (got <= 0)
			fail("cannot read the kernel's text in ", "/proc/kcore", got);
		at += (size_t)got;
	}
	memcpy(to + size, (const void *)places, PLACES * PLACE_SIZE);
}

// Where so many bytes at an address are in an ELF file, 0 where they are not.
static uint64_t offset_in(int fd, uint64_t address, size_t size)
{
	struct {
		unsigned char ident[16];
		uint16_t type, machine;
		uint32_t version;
		uint64_t entry, headers, sections;
		uint32_t flags;
		uint16_t size, header_size, header_count;
	} elf;
	struct {
		uint32_t type, flags;
		uint64_t offset, address, physical, file_size, size, alignment;
	} header;

	sys4(SYS_pread64, fd, &elf, sizeof(elf), 0);
	for (int i = 0; i < elf.header_count; i++) {
		sys4(SYS_pread64, fd, &header, sizeof(header), elf.headers + (uint64_t)i * sizeof(header));
		if (header.type == 1 && header.address <= address && address + size - header.address <= header.size)
			return header.offset + address - header.address;
	}
	return 0;
}

static void open_text(void)
{
	static const char core[] = "/proc/kcore", self[] = "/proc/self/exe";
	const size_t size = functions.text_end - functions.text_start;

	core_fd = (int)checked(sys3(SYS_open, self, O_RDONLY | O_CLOEXEC, 0), "cannot open ", self);
	places_offset = offset_in(core_fd, (uint64_t)places, PLACES * PLACE_SIZE);
	sys1(SYS_close, core_fd);
	core_fd = (int)checked(sys3(SYS_open, core, O_RDONLY | O_CLOEXEC, 0), "this kernel lacks ", core);
	core_offset = offset_in(core_fd, functions.text_start, size);
	if (!core_offset || !places_offset)
		fail("the text is not in ", core, -E_NOENT);
	text_before = room_for(size + PLACES * PLACE_SIZE);
	text_now = room_for(size + PLACES * PLACE_SIZE);
	read_text(text_now);	// so that reading it again takes no memory any more
	read_text(text_before);
}

// How many bytes of the text, the kernel's and that of the places here, are not as before.
static uint64_t changed_bytes(void)
{
	const size_t size = functions.text_end - functions.text_start + PLACES * PLACE_SIZE;
	uint64_t changed = 0;

	read_text(text_now);
	for (size_t at = 0; at < size; at++) {
		while (at % 8 == 0 && at + 8 <= size && *(uint64_t *)(text_now + at) == *(uint64_t *)(text_before + at))
			at += 8;
		changed += at < size && text_now[at] != text_before[at];
	}
	return changed;
}

static uint64_t listed(void)
{
	uint64_t armed = 0;

	if (mechanism->list)
		return (uint64_t)checked(count_lines(mechanism->list), "cannot read ", mechanism->list);
	for (size_t i = 0; i < PLACES; i++)
		armed += *((const volatile unsigned char *)places + i * PLACE_SIZE) == 0xcc;
	return armed;
}

static void print_value(const char *name, uint64_t value)
{
	print(1, " ");
	print(1, name);
	print(1, "=");
	print_number(1, value);
}

static void begin_line(const char *step, const char *count)
{
	print(1, step);
	print(1, " ");
	print(1, count);
	print(1, ":");
}

struct memory {
	uint64_t slab, vmalloc, percpu;
};

// What the kernel holds, some of its time later.
static struct memory memory_soon(void)
{
	static const long a_while[2] = {0, 300000000};

	sys2(SYS_nanosleep, a_while, NULL);
	write_to("/proc/sys/vm/stat_refresh", "1", 1, 0);
	return (struct memory){memory_kib("Slab:"), memory_kib("VmallocUsed:"), memory_kib("Percpu:")};
}

// Once no more is freed of what the kernel frees later: trampolines wait for one grace period after the other.
static void print_memory(void)
{
	struct memory now = memory_soon(), before;
	int tries = SETTLES;

	do {
		before = now;
		now = memory_soon();
	} while (--tries && now.slab + now.vmalloc + now.percpu < before.slab + before.vmalloc + before.percpu);
	print_value("slab", now.slab);
	print_value("vmalloc", now.vmalloc);
	print_value("percpu", now.percpu);
}

static void print_bytes(const char *name, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	char digits[2 * LOOKED_AT + 1];

	// The place may be behind an endbr.
	for (int i = 0; i < LOOKED_AT; i++) {
		digits[2 * i] = "0123456789abcdef"[at[i] >> 4];
		digits[2 * i + 1] = "0123456789abcdef"[at[i] & 15];
	}
	digits[2 * LOOKED_AT] = 0;
	print(1, " ");
	print(1, name);
	print(1, "=");
	print(1, digits);
}

// Where the target's text changes: its first byte that is another one now, of the first sixteen.
static size_t target_at(void)
{
	const size_t size = functions.text_end - functions.text_start;
	size_t at = mechanism->list ? functions.all[0].address - functions.text_start : size, i = 0;

	while (i < 16 && text_now[at + i] == text_before[at + i])
		i++;
	return at + (i & 15);
}

// --- one number of functions -------------------------------------------------------------------------

static void prepare(uint32_t count)
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
}

// On the console, as steps.sh: how far this is.
static void say(const char *what, const char *name)
{
	char line[LINE];

	put(put(put(put(line, "<4>lab: "), what), text_equal(name, "0") ? "all" : name), " functions");
	write_to("/dev/kmsg", line, text_length(line), 0);
}

static void measure(const char *name, uint32_t count)
{
	uint64_t clock, ticks;
	struct calls calls;
	int signal = 0;
	size_t at;
	long error;

	prepare(count);
	if (!mechanism->type && !is("kprobe-events"))
		checked(tell_module("prepare", count), "no room for ", name);
	read_text(text_before);
	begin_line("bare", name);
	print_value("listed", listed());
	print_memory();
	print_value("ticks", measure_calls(0).ticks);
	print(1, "\n");
	say("attach to ", name);
	ticks = begin_region();
	clock = clock_now();
	error = starves ? attach_starved(count, &signal) : attach(count);
	clock = clock_now() - clock;
	ticks = end_region() - ticks;
	__asm__ volatile(REGION_MARK(REGION_KEEP));
	begin_line("attach", name);
	print_value("wanted", count);
	print_value("error", (uint64_t)-error);
	print_value("signal", (uint64_t)signal);
	print_value("ns", clock);
	print_value("ticks", ticks);
	print(1, "\n");
	if (!error && !starves) {
		begin_line("while", name);
		print_value("listed", listed());
		print_value("changed", changed_bytes());
		print_memory();
		calls = measure_calls(1);
		print_value("calls", CALLS);
		print_value("hits", calls.hits);
		print_value("ticks", calls.ticks);
		at = target_at();
		print_bytes("before", text_before + at);
		print_bytes("live", text_now + at);
		print(1, "\n");
		say("detach from ", name);
		ticks = begin_region();
		clock = clock_now();
		error = detach();
		clock = clock_now() - clock;
		ticks = end_region() - ticks;
		__asm__ volatile(REGION_MARK(REGION_KEEP));
		begin_line("detach", name);
		print_value("error", (uint64_t)-error);
		print_value("ns", clock);
		print_value("ticks", ticks);
		print(1, "\n");
	}
	begin_line("after", name);
	print_value("listed", listed());
	print_value("changed", changed_bytes());
	print_memory();
	print(1, "\n");
}

// Once, with the target alone: what the first user of a mechanism alone costs is not of the functions.
static void warm_up(void)
{
	const int was_wrong = wrong_name;

	wrong_name = 0;
	prepare(1);
	if (!mechanism->type && !is("kprobe-events"))
		checked(tell_module("prepare", 1), "no room for ", "one");
	checked(attach(1), "cannot attach to the target by ", mechanism->name);
	checked(detach(), "cannot detach from the target by ", mechanism->name);
	wrong_name = was_wrong;
}

static uint32_t number(const char *text)
{
	return (uint32_t)checked(parse_number(text), "no number: ", text);
}

// No place of the mechanism. The tracer takes each byte of a function's call for its place, but traces no first byte of
// the text; a kprobe is refused in the middle of the call.
static unsigned long wrong_address(uint32_t i)
{
	return is("ftrace") || is("fprobe") ? functions.text_start : functions.all[i].address + 1;
}

// As many as the largest number asks for. Addresses of the wrong one, too: the module gets them once.
static void write_sites(uint32_t count)
{
	unsigned long *addresses = room_for(count * sizeof(*addresses));

	for (uint32_t i = 0; i < count; i++)
		addresses[i] = wrong_name && i == count / 2 ? wrong_address(i) : functions.all[i].address;
	checked(write_to(sites, (const char *)addresses, count * sizeof(*addresses), 0), "the module refuses ", sites);
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

int program(int argc, char **argv, char **environment)
{
	uint32_t largest = 1;
	char line[LINE];
	size_t room;

	(void)environment;
	if (argc < 5)
		fail("expected MECHANISM SEED FAULT COUNT...", "", 0);
	for (size_t i = 0; i < sizeof(mechanisms) / sizeof(*mechanisms); i++)
		if (text_equal(argv[1], mechanisms[i].name))
			mechanism = &mechanisms[i];
	if (!mechanism)
		fail("no such mechanism: ", argv[1], 0);
	wrong_name = text_equal(argv[3], "name");
	starves = text_equal(argv[3], "memory");
	checked(read_functions(&functions, mechanism->demands, "__x64_sys_getpgid", number(argv[2])),
		"cannot read the kernel's functions", "");
	if (!mechanism->list)
		functions.count = PLACES;
	room = functions.count * sizeof(*words);
	words = room_for(room);
	ids = room_for(room);
	links = room_for(room);
	programs = room_for(room);
	if (mechanism->type)
		prepare_program();
	for (int i = 4; i < argc; i++) {
		const uint32_t count = number(argv[i]) ?: functions.count;

		if (count <= functions.count && count > largest)
			largest = count;
	}
	if (!mechanism->type && !is("kprobe-events"))
		write_sites(largest);
	open_text();
	print(1, "functions:");
	print_value("all", functions.count);
	print_value("own", !mechanism->list);
	put_number(put(line, " target="), mechanism->list ? functions.all[0].address : (unsigned long)places, 16);
	print(1, line);
	print(1, "\n");
	__asm__ volatile(REGION_MARK(REGION_ARM));
	for (int i = 0; i < WARM_UP; i++)
		clock_now();
	warm_up();
	for (int i = 4; i < argc; i++) {
		const uint32_t count = number(argv[i]);

		if (count <= functions.count)
			measure(argv[i], count ?: functions.count);
	}
	return 0;
}
