// SPDX-License-Identifier: GPL-2.0-only
// What does it cost to attach to many functions, and to detach? One mechanism, with one number of functions after the
// other, 0 for all that there are; the first of them is always the target, a system call that this program makes.
//
//   attachmany MECHANISM SEED FAULT COUNT...
//   MECHANISM: kprobes, kprobe-array, ftrace, fprobe (by the module lab_attach), livepatch (by lab_livepatch),
//              kprobe-events (of tracefs),
//              kprobe-multi, fentry, fentry-multi, fexit-multi, uprobe-multi (BPF programs that count)
//   FAULT: none; name, one of the functions is none, in the middle; memory, hardly any is left
//
// Output, a line for each step of each number; times in nanoseconds, ticks of the TSC between two marks (region.h),
// memory in KiB, calls and hits as they were counted, the rest as numbers of lines or of bytes:
//   functions: all=N own=0|1 target=ADDRESS
//   bare COUNT: listed=N slab=KIB vmalloc=KIB percpu=KIB ticks=T     of some calls of the target
//   attach COUNT: wanted=N error=ERRNO signal=NUMBER ns=T ticks=T
//   while COUNT: listed=N changed=BYTES slab=KIB vmalloc=KIB percpu=KIB calls=N hits=N regions=N ticks=T before=HEX live=HEX
//   detach COUNT: error=ERRNO ns=T ticks=T
//   after COUNT: listed=N changed=BYTES slab=KIB vmalloc=KIB percpu=KIB
// ticks in while: of as many calls as in bare, with these hits. regions: if the mechanism counts no hits, the number of
// regions of calls that are kept between attach's and detach's, alternately of CALLS calls and of twice as many.
// signal: what ended the attaching process, if memory is short. If attaching fails, there is no while and no detach.
#include "attaching.h"
#include "clock.h"
#include "commands.h"
#include "kernel_text.h"
#include "lists.h"
#include "region_clock.h"
#include "starving.h"

enum { CALLS = 50, LOOKED_AT = 5, SETTLES = 100, LINE = 512 };
enum { BATCHES = 5, MOST_BATCHES = 20 };

static int starves;

// --- figures -----------------------------------------------------------------------------------------

struct calls {
	uint64_t ticks, hits;
};

// The minimum of some batches of CALLS calls, since one may include a timer tick; less what an empty batch costs.
// What else the kernel does meanwhile hits some of many functions too: with 1,000 events on Linux 7.3 five batches had 52
// hits in 50 calls. So there are more batches until each call has as many hits as the others.
static struct calls measure_calls(int counts, int keeps)
{
	struct calls least[2] = {{-1, -1}, {-1, -1}};

	for (int i = 0; i < 2 * BATCHES || (i < 2 * MOST_BATCHES && (least[1].hits - least[0].hits) % CALLS); i++) {
		const uint32_t twice = i & 1;
		const uint64_t hits = counts ? hits_now() : 0;
		uint64_t ticks = begin_region(), made;

		call_target(CALLS << twice);
		ticks = end_region() - ticks;
		if (keeps)
			__asm__ volatile(REGION_MARK(REGION_KEEP));
		made = counts ? hits_now() - hits : 0;
		least[twice].ticks = ticks < least[twice].ticks ? ticks : least[twice].ticks;
		least[twice].hits = made < least[twice].hits ? made : least[twice].hits;
	}
	return (struct calls){least[1].ticks - least[0].ticks, least[1].hits - least[0].hits};
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

static uint64_t memory_kib(const char *name)
{
	static const char memory[] = "/proc/meminfo";

	return (uint64_t)checked(number_behind(memory, name), "cannot read ", memory);
}

struct memory {
	uint64_t slab, vmalloc, percpu;
};

// The kernel's memory, after a while.
static struct memory memory_soon(void)
{
	static const long a_while[2] = {0, 300000000};

	sys2(SYS_nanosleep, a_while, NULL);
	write_to("/proc/sys/vm/stat_refresh", "1", 1, 0);
	return (struct memory){memory_kib("Slab:"), memory_kib("VmallocUsed:"), memory_kib("Percpu:")};
}

// Waits until the kernel has freed what it frees later: trampolines wait for several grace periods.
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

	// The probed place may follow an endbr.
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

// The first of the target's first sixteen bytes that has changed.
static size_t target_at(void)
{
	const size_t size = functions.text_end - functions.text_start;
	size_t at = mechanism->list ? functions.all[0].address - functions.text_start : size, i = 0;

	while (i < 16 && text_now[at + i] == text_before[at + i])
		i++;
	return at + (i & 15);
}

// --- one number of functions -------------------------------------------------------------------------

// Reports progress on the console, as steps.sh does.
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
	checked(remember_text(), "cannot read the kernel's text", "");
	begin_line("bare", name);
	print_value("listed", listed());
	print_memory();
	print_value("ticks", measure_calls(0, 0).ticks);
	print(1, "\n");
	say("attach to ", name);
	ticks = begin_region();
	clock = read_clock();
	error = starves ? starve(attach, count, &signal) : attach(count);
	clock = read_clock() - clock;
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
		print_value("changed", (uint64_t)checked(changed_bytes(), "cannot read the kernel's text", ""));
		print_memory();
		calls = measure_calls(1, !counts_hits());
		print_value("calls", CALLS);
		print_value("hits", calls.hits);
		print_value("regions", counts_hits() ? 0 : 2 * BATCHES);
		print_value("ticks", calls.ticks);
		at = target_at();
		print_bytes("before", text_before + at);
		print_bytes("live", text_now + at);
		print(1, "\n");
		say("detach from ", name);
		ticks = begin_region();
		clock = read_clock();
		error = detach();
		clock = read_clock() - clock;
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
	print_value("changed", (uint64_t)checked(changed_bytes(), "cannot read the kernel's text", ""));
	print_memory();
	print(1, "\n");
}

// Attach to the target once before measuring: the first user of a mechanism pays its one-time cost.
static void warm_up(void)
{
	const int was_wrong = wrong_name;

	wrong_name = 0;
	prepare(1);
	checked(attach(1), "cannot attach to the target by ", mechanism->name);
	checked(detach(), "cannot detach from the target by ", mechanism->name);
	wrong_name = was_wrong;
}

static uint32_t number(const char *text)
{
	return (uint32_t)checked(parse_number(text), "no number: ", text);
}

int program(int argc, char **argv, char **environment)
{
	uint32_t largest = 1;
	char line[LINE];

	(void)environment;
	if (argc < 5)
		fail("expected MECHANISM SEED FAULT COUNT...", "", 0);
	wrong_name = text_equal(argv[3], "name");
	starves = text_equal(argv[3], "memory");
	choose_mechanism(argv[1], number(argv[2]));
	for (int i = 4; i < argc; i++) {
		const uint32_t count = number(argv[i]) ?: functions.count;

		if (count <= functions.count && count > largest)
			largest = count;
	}
	give_functions(largest);
	checked(watch_text(functions.text_start, functions.text_end, (const void *)places, PLACES * PLACE_SIZE),
		"cannot read the kernel's text", "");
	print(1, "functions:");
	print_value("all", functions.count);
	print_value("own", !mechanism->list);
	put_number(put(line, " target="), mechanism->list ? functions.all[0].address : (unsigned long)places, 16);
	print(1, line);
	print(1, "\n");
	arm_counting();
	warm_up();
	for (int i = 4; i < argc; i++) {
		const uint32_t count = number(argv[i]);

		if (count <= functions.count)
			measure(argv[i], count ?: functions.count);
	}
	return 0;
}
