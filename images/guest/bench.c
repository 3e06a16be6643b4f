// SPDX-License-Identifier: GPL-2.0-only
// Measures what a call costs: the options and the output that callbench and workloads share.
//
//   -n CALLS [-b BATCH] [-r REPEATS] [-u UNTIMED] [-m MARKED [-w WARMING]] [-k SINGLY]
//       REPEATS samples of CALLS calls each, made of batches of at most BATCH calls. A batch of several begins right after
//       a timer tick, unless QEMU counts; one that an interrupt, a page fault, another task or a new second fell into is
//       thrown away and run again, right after a tick. Where each call has a page fault, or lets another task run, that
//       is a part of what it costs. Behind the samples it makes UNTIMED system calls more (CALLS, if not given), one by
//       one: their results are all known. With MARKED 1, the counting plugin of QEMU (region.h)
//       counts meanwhile: it gets two empty batches, and then each sample's batches together. WARMING calls directly before
//       each batch leave the same in a cache whatever the program did before them. With SINGLY 1, each call of a batch
//       is timed alone, and the sample's costs follow it: at most MOST_SINGLE calls a sample.
//   -c CALLS [-P FILE]
//       exactly CALLS calls one by one, neither timed nor repeated: for counting and checking the hits of a probe. Before
//       them the program writes its process number to FILE, behind them -1.
//   -j CPUS -n CALLS [-r REPEATS]
//       for the plugin that counts on each CPU (images/plugin/cpus.c): a process on each of the first CPUs, which take
//       turns after each call. A batch of a fifth of CALLS, then REPEATS batches in which each process makes CALLS, and
//       some before them which do not count. A batch is thrown away as above.
//   -R GROUP -Q ROOM
//       with -n: the process group that reads what the calls' probes write, and is stopped. Where the next batch would
//       make more than ROOM calls since, it reads, and one call follows, which may wake it. The kernel's interrupts to
//       itself (IRQ work) are the calls' own then.
//   -l OFFSET:FILE
//       behind all calls, tells which bytes are executed at an offset of a file that the process has mapped
//   -s SECONDS [-r REPEATS]
//       as in 2005: calls for SECONDS seconds, counts them and prints the average
//
// Output, one line each:
//   entry NAME number=N                                           N with -n only: the system call's
//   empty tsc=T ns=N                                              a batch of no calls: what every batch costs
//   sample I calls=C batches=B tsc=T ns=N disturbed=D             sums over the batches
//   costs T*N T*N ...                                             with SINGLY: N calls in a row took T each
//   results timed ...                                             as in results.h, with -n of system calls only: of the
//                                                                 last warm-up call, and the last one of each batch that
//                                                                 counts
//   results untimed ...                                           of the calls behind the samples, which may be none
//   turns calls=C tsc=T disturbed=D                               with -j, of each batch: T on all CPUs together
//   run I calls=C ns=N average=A                                  with -s; A in whole nanoseconds
//   called calls=N pid=P result=R ...                             with -c; R of the last call, then the program's own
//   results untimed ...                                           with -c; of all system calls
//   live HEX                                                      with -l, at last
#include "bench.h"
#include "clock.h"
#include "disturbance.h"
#include "failure.h"
#include "mapping.h"
#include "process.h"
#include "reader.h"
#include "region_clock.h"
#include "results.h"
#include "turns.h"

enum { EMPTY_BATCHES = 16, SECONDS_MODE_BATCH = 1000, MOST_SINGLE = 8192 };
// Nanoseconds, half of what the kernel gives the youngest key; and _IO('R', 0x07) of the kernel's <linux/random.h>.
enum { RANDOM_KEY_LIFE = 500 * 1000 * 1000, RNDRESEEDCRNG = 0x5207 };

static int is_marked, is_single;
static long warming_calls;
// Of a sample's calls, in TSC units. Behind all other data, which stays in the lines of caches that it had, and no mapping
// of its own, which the kernel would merge with those of calls.
uint32_t bench_costs[MOST_SINGLE] __attribute__((common));

struct timing {
	uint64_t tsc, ns;
	long result;	// the last call's
};

// A call that draws a random number, as one that fetches a slab does, makes the kernel's generator a new key where the
// last one is old: on Linux 6.1 once a minute, in a young guest once a second (crng_has_old_seed()). So it gets one
// between batches. A new key makes the draws begin a new block, too: in each process at the same call.
static void renew_random_key(void)
{
	static long pool = -1;
	static uint64_t renewed;
	uint64_t now = read_clock();

	if (renewed && now - renewed < RANDOM_KEY_LIFE)
		return;
	if (pool < 0)
		pool = sys3(SYS_open, "/dev/urandom", O_RDONLY | O_CLOEXEC, 0);
	sys3(SYS_ioctl, pool, RNDRESEEDCRNG, 0);
	renewed = now;
}

// One function for all batches: an empty batch takes as many instructions as a full one takes besides its calls.
static uint64_t __attribute__((noinline)) time_calls(const struct bench *bench, long calls, long *result)
{
	uint64_t start = begin_region();

	*result = bench->loop(calls);
	return end_region() - start;
}

static uint64_t time_each(const struct bench *bench, long calls, uint32_t *each, long *result)
{
	uint64_t sum = 0;

	for (long i = 0; i < calls; i++) {
		each[i] = (uint32_t)time_calls(bench, 1, result);
		sum += each[i];
	}
	return sum;
}

static struct timing time_batch(const struct bench *bench, long calls, uint32_t *each)
{
	struct timing taken;
	uint64_t clock = read_clock();
	long result = 0;

	if (warming_calls)
		bench->loop(warming_calls);
	taken.tsc = each ? time_each(bench, calls, each, &result) : time_calls(bench, calls, &result);
	taken.ns = read_clock() - clock;
	taken.result = result;
	bench->check(result);
	return taken;
}

// So that so many calls have room for what they write.
static void make_room(const struct bench *bench, long calls)
{
	if (let_read(calls))
		bench->loop(1);
}

// Repeats a batch until it is undisturbed, and counts the disturbed ones. If it is not the last of a sample, QEMU adds
// its counts to those of the last one.
static struct timing clean_batch(const struct bench *bench, long calls, uint32_t *each, int is_last, long *disturbed)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct disturbance before, after;
		struct timing result;

		renew_random_key();
		if (calls)
			make_room(bench, calls + warming_calls);
		// One call, or none, fits nearly anywhere between two ticks, and so do the few that QEMU counts. To wait
		// for a tick takes as long as ten million instructions (100 a second), twice as long while QEMU counts.
		if ((calls > 1 && !is_marked) || attempt)
			wait_for_tick();
		before = count_disturbances();
		result = time_batch(bench, calls, each);
		after = count_disturbances();
		if (is_undisturbed(&before, &after, calls + warming_calls, attempt)) {
			if (is_last)
				__asm__ volatile(REGION_MARK(REGION_KEEP));
			else
				__asm__ volatile(REGION_MARK(REGION_ADD));
			return result;
		}
		++*disturbed;
	}
	fail("no batch without an interrupt, a page fault or another task in 200 attempts: ",
	     "the calls take too long for the time between two ticks, or sleep, or touch new memory");
}

// Makes calls one by one, to note each result. Returns the last one.
static long note_calls(const struct bench *bench, long calls, struct results *results)
{
	long result = 0;

	for (long i = 0; i < calls; i++) {
		make_room(bench, 1);
		result = bench->loop(1);
		note_result(results, result);
	}
	return result;
}

struct sampling {
	long calls, batch, repeats, untimed, marked, warming, single;
};

static void print_costs(long calls)
{
	print(1, "costs");
	for (long first = 0, i = 1; first < calls; i++) {
		if (i < calls && bench_costs[i] == bench_costs[first])
			continue;
		print_field(" ", bench_costs[first]);
		print_field("*", (uint64_t)(i - first));
		first = i;
	}
	print(1, "\n");
}

// By the wall clock of a busy host one empty batch took 33410 cycles, more than two batches with calls in them: the host
// had run something else meanwhile. Such a delay only adds, as do interrupts, so no tick need be awaited. By the exact
// clock all are equal.
static struct timing shortest_empty(const struct bench *bench, struct timing shortest)
{
	for (int i = 0; i < EMPTY_BATCHES; i++) {
		struct timing again = time_batch(bench, 0, NULL);

		if (again.tsc < shortest.tsc)
			shortest = again;
	}
	return shortest;
}

static long warm_up(const struct bench *bench)
{
	long result = 0, most = room_of_reader() < WARM_UP_CALLS ? room_of_reader() : WARM_UP_CALLS;

	for (long left = WARM_UP_CALLS; left > 0; left -= most) {
		const long calls = left < most ? left : most;

		make_room(bench, calls);
		result = bench->loop(calls);
	}
	return result;
}

static void run_samples(const struct bench *bench, const struct sampling *wanted)
{
	long ignored = 0, result;
	struct timing empty;
	struct results timed = {0}, untimed = {0};

	is_marked = wanted->marked != 0;
	if (is_marked)
		__asm__ volatile(REGION_MARK(REGION_ARM));
	is_single = wanted->single != 0;
	if (is_single && wanted->calls > MOST_SINGLE)
		fail("too many calls to time each alone", "");
	// All pages must be there before a batch begins.
	if (is_single)
		memset(bench_costs, 1, sizeof(bench_costs));
	warming_calls = wanted->warming;
	result = warm_up(bench);
	bench->check(result);
	note_result(&timed, result);
	clean_batch(bench, 0, NULL, 1, &ignored);
	empty = shortest_empty(bench, clean_batch(bench, 0, NULL, 1, &ignored));
	print_field("empty tsc=", empty.tsc);
	print_field(" ns=", empty.ns);
	print(1, "\n");
	for (long i = 0; i < wanted->repeats; i++) {
		struct timing sum = {0, 0, 0};
		long batches = 0, disturbed = 0;

		for (long left = wanted->calls; left; batches++) {
			long size = left < wanted->batch ? left : wanted->batch;
			uint32_t *each = is_single ? bench_costs + wanted->calls - left : NULL;
			struct timing one = clean_batch(bench, size, each, size == left, &disturbed);

			sum.tsc += one.tsc;
			sum.ns += one.ns;
			left -= size;
			note_result(&timed, one.result);
		}
		print_field("sample ", (uint64_t)i);
		print_field(" calls=", (uint64_t)wanted->calls);
		print_field(" batches=", (uint64_t)batches);
		print_field(" tsc=", sum.tsc);
		print_field(" ns=", sum.ns);
		print_field(" disturbed=", (uint64_t)disturbed);
		print(1, "\n");
		if (is_single)
			print_costs(wanted->calls);
	}
	if (wanted->marked)
		__asm__ volatile(REGION_MARK(REGION_DISARM));
	// A function of the user's own returns nothing to look at.
	if (!bench->number)
		return;
	note_calls(bench, wanted->untimed, &untimed);
	print_results("timed", &timed);
	print_results("untimed", &untimed);
}

static void run_seconds(const struct bench *bench, long seconds, long repeats)
{
	for (long i = 0; i < repeats; i++) {
		uint64_t start = read_clock(), spent;
		uint32_t calls = 0;

		do {
			bench->check(bench->loop(SECONDS_MODE_BATCH));
			calls += SECONDS_MODE_BATCH;
			spent = read_clock() - start;
		} while (spent < (uint64_t)seconds * 1000000000u);
		print_field("run ", (uint64_t)i);
		print_field(" calls=", calls);
		print_field(" ns=", spent);
		print_field(" average=", divide(spent, calls, NULL));
		print(1, "\n");
	}
}

static void run_calls(const struct bench *bench, long calls, const char *file)
{
	uint64_t pid = (uint64_t)sys0(SYS_getpid);
	struct results untimed = {0};
	long result;

	tell_process(file, (int)pid);
	result = note_calls(bench, calls, &untimed);
	tell_process(file, NOBODY);
	bench->check(result);
	print_field("called calls=", (uint64_t)calls);
	print_field(" pid=", pid);
	print_word(" result=", (unsigned long)result);
	bench->print_called();
	print(1, "\n");
	if (bench->number)
		print_results("untimed", &untimed);
}

// An instruction has at most so many bytes, and so has what the kernel puts in its place.
enum { LIVE_BYTES = 16, MAPS_BYTES = 1 << 16 };

static void show_live(char *place)
{
	static char maps[MAPS_BYTES + 1];
	char *file = place;
	long size = file_content("/proc/self/maps", maps, MAPS_BYTES);
	unsigned long address;

	while (*file && *file != ':')
		file++;
	if (*file)
		*file++ = 0;
	maps[size > 0 ? size : 0] = 0;
	address = find_mapping(maps, file, (unsigned long)parse_number(place));
	if (!address)
		fail("the program has not mapped ", file);
	print_hex("live ", (const unsigned char *)address, LIVE_BYTES);
}

int run_bench(struct bench *bench, int argc, char **argv)
{
	struct sampling wanted = {.calls = -1, .batch = -1, .repeats = 1, .untimed = -1};
	long seconds = -1, counted = -1, cpus = 0, group = 0;
	const char *file = NULL;
	char *live = NULL;

	// What the calls return must not change how many system calls the program makes besides them.
	hold_output();
	for (int i = 1; i < argc; i += 2) {
		const char *option = argv[i];
		char *value = i + 1 < argc ? argv[i + 1] : NULL;
		long number = value ? parse_number(value) : -1;

		if (value && bench->take_option(option, value))
			continue;
		if (value && text_equal(option, "-P"))
			file = value;
		else if (value && text_equal(option, "-l"))
			live = value;
		else if (number >= 0 && text_equal(option, "-c"))
			counted = number;
		else if (number >= 0 && text_equal(option, "-u"))
			wanted.untimed = number;
		else if (number >= 0 && text_equal(option, "-m"))
			wanted.marked = number;
		else if (number >= 0 && text_equal(option, "-w"))
			wanted.warming = number;
		else if (number >= 0 && text_equal(option, "-k"))
			wanted.single = number;
		else if (number < 1)
			fail("expected one of -n -b -r -u -m -w -k -c -s -j -R -Q with a number, found ", option);
		else if (text_equal(option, "-R"))
			group = number;
		else if (text_equal(option, "-Q"))
			set_reader(group, number);
		else if (text_equal(option, "-n"))
			wanted.calls = number;
		else if (text_equal(option, "-b"))
			wanted.batch = number;
		else if (text_equal(option, "-r"))
			wanted.repeats = number;
		else if (text_equal(option, "-j"))
			cpus = number;
		else if (text_equal(option, "-s"))
			seconds = number;
		else
			fail("unknown option ", option);
	}
	if (wanted.batch < 0)
		wanted.batch = wanted.calls;
	if (wanted.untimed < 0)
		wanted.untimed = wanted.calls;
	if ((wanted.calls > 0) + (seconds > 0) + (counted >= 0) != 1)
		fail("give one of -n CALLS, -c CALLS and -s SECONDS", "");
	open_statistics(has_reader());
	bench->prepare();
	print(1, "entry ");
	print(1, bench->entry);
	if (wanted.calls > 0 && bench->number)
		print_field(" number=", (uint64_t)*bench->number);
	print(1, "\n");
	if (counted >= 0)
		run_calls(bench, counted, file);
	else if (seconds > 0)
		run_seconds(bench, seconds, wanted.repeats);
	else if (cpus)
		run_turns(bench, cpus, wanted.calls, wanted.repeats);
	else
		run_samples(bench, &wanted);
	if (live)
		show_live(live);
	return 0;
}
