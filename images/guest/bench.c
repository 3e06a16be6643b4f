// SPDX-License-Identifier: GPL-2.0-only
// What one call costs, whatever it is that a program calls; the options and the output that such programs share.
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
#include "mapping.h"
#include "region_clock.h"
#include "results.h"

enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 1, RUSAGE_SELF = 0 };
enum { ATTEMPTS = 200, EMPTY_BATCHES = 16, WARM_UP_CALLS = 100, SECONDS_MODE_BATCH = 1000 };
// Two readings of the TSC in a row lie a few instructions apart; a tick's handler takes ten thousand.
enum { TICK_GAP = 2000 };
// No tick for so many TSC units means that there is none to wait for (10 ms ticks, 5 GHz).
enum { TICK_WAIT = 100 * 1000 * 1000 };

// Nanoseconds, half of what the kernel gives the youngest key; and _IO('R', 0x07) of the kernel's <linux/random.h>.
enum { RANDOM_KEY_LIFE = 500 * 1000 * 1000, RNDRESEEDCRNG = 0x5207 };

enum { NOBODY = -1 };
enum { MOST_SINGLE = 8192, OWN_ATTEMPTS = 3 };

static int statistics;
static int is_marked, is_single;
// Whether calls fault, or let other tasks run, themselves.
static int is_faulting, is_switching;
static long warming_calls;
// Of a sample's calls, in TSC units. Behind all other data, which stays in the lines of caches that it had, and no mapping
// of its own, which the kernel would merge with those of calls.
uint32_t bench_costs[MOST_SINGLE] __attribute__((common));
static const char *program_name = "bench";

void fail(const char *what, const char *about)
{
	print(2, program_name);
	print(2, ": ");
	print(2, what);
	print(2, about);
	print(2, "\n");
	exit_program(2);
}

// When a second is new, gettimeofday itself takes a longer way: every call carries nanoseconds over into seconds, until
// a tick does it for all. Ticks account for time in whole tick lengths, so the first one in a second may not be enough.
struct disturbance {
	uint64_t interrupts;
	long faults, switches;
	int64_t second, nanosecond;
};

// Nanoseconds: two ticks of the slowest usual kind (100 a second) and some more.
enum { NEW_SECOND = 25 * 1000 * 1000 };

struct timing {
	uint64_t tsc, ns;
	long result;	// the last call's
};

static uint64_t read_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static uint64_t read_clock(void)
{
	int64_t now[2] = {0, 0};

	sys2(SYS_clock_gettime64, CLOCK_MONOTONIC, now);
	return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
}

// The total of the "intr" line counts every interrupt of every kind, the local timer's included.
static uint64_t count_interrupts(void)
{
	static char text[16384];
	uint64_t total = 0;
	long size;

	sys3(SYS_lseek, statistics, 0, 0);
	size = sys3(SYS_read, statistics, text, sizeof(text));
	for (long i = 0; i + 6 < size; i++) {
		if (text[i] != '\n' || text[i + 1] != 'i' || text[i + 2] != 'n')
			continue;
		for (i += 6; i < size && text[i] >= '0' && text[i] <= '9'; i++)
			total = total * 10 + (uint64_t)(text[i] - '0');
		return total;
	}
	fail("/proc/stat has no line of interrupts", "");
}

static struct disturbance look_around(void)
{
	long usage[18 + 16];
	struct disturbance now;
	int64_t time[2] = {0, 0};

	sys2(SYS_clock_gettime64, CLOCK_REALTIME, time);
	now.second = time[0];
	now.nanosecond = time[1];
	now.interrupts = count_interrupts();
	sys2(SYS_getrusage, RUSAGE_SELF, usage);
	now.faults = usage[8] + usage[9];
	now.switches = usage[16] + usage[17];
	return now;
}

// What happens in each call, again and again, is the calls' own; memory that is new to them is touched once.
static int disturbs(long times, long calls, int attempt, int *is_own)
{
	if (attempt >= OWN_ATTEMPTS && calls && times >= calls)
		*is_own = 1;
	return times && !*is_own;
}

static int is_same(const struct disturbance *before, const struct disturbance *after, long calls, int attempt)
{
	int faults = disturbs(after->faults - before->faults, calls, attempt, &is_faulting);
	int switches = disturbs(after->switches - before->switches, calls, attempt, &is_switching);

	return after->interrupts == before->interrupts && !faults && !switches && after->second == before->second &&
	       before->nanosecond > NEW_SECOND;
}

static void wait_for_tick(void)
{
	uint64_t start = read_tsc(), last = start, now;

	do {
		now = read_tsc();
		if (now - last > TICK_GAP)
			return;
		last = now;
	} while (now - start < TICK_WAIT);
}

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

// One function for all, so that an empty batch takes what calls take besides themselves: one by one or not.
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

// One batch that nothing fell into; counts those that something did. If it is not the last one of a sample, QEMU keeps
// what it has counted for the last one.
static struct timing clean_batch(const struct bench *bench, long calls, uint32_t *each, int is_last, long *disturbed)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct disturbance before, after;
		struct timing result;

		renew_random_key();
		// One call, or none, fits nearly anywhere between two ticks, and so do the few that QEMU counts. To wait
		// for a tick takes as long as ten million instructions (100 a second), twice as long while QEMU counts.
		if ((calls > 1 && !is_marked) || attempt)
			wait_for_tick();
		before = look_around();
		result = time_batch(bench, calls, each);
		after = look_around();
		if (is_same(&before, &after, calls + warming_calls, attempt)) {
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

void print_field(const char *name, uint64_t value)
{
	print(1, name);
	print_number(1, value);
}

void print_word(const char *name, unsigned long value)
{
	char digits[2 * sizeof(value) + 1];
	char *first = digits + sizeof(digits) - 1;

	*first = 0;
	do {
		*--first = "0123456789abcdef"[value % 16];
		value /= 16;
	} while (value);
	print(1, name);
	print(1, "0x");
	print(1, first);
}

// One by one, so that each result is seen. Returns the last one.
static long note_calls(const struct bench *bench, long calls, struct results *results)
{
	long result = 0;

	for (long i = 0; i < calls; i++) {
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
	result = bench->loop(WARM_UP_CALLS);
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

enum { MOST_CPUS = 16, LINE = 64, WARMING_TURNS = 20, SETTLING_TURNS = 100, FEWER_TURNS = 5, NO_MORE = -1 };
// Far more turns than the others need when the first one has ended its batch.
enum { LONG_WAIT = 100000 };
enum { PR_SET_PDEATHSIG = 1, SIGKILL = 9, WNOHANG = 1 };

// What the processes of several CPUs share, each in a line of its own.
struct turn {
	volatile long batch __attribute__((aligned(LINE)));
};

static struct {
	struct turn begun, ended[MOST_CPUS];
	volatile long calls;	// of the batch that has begun
} *turns;

// In QEMU's single thread of all CPUs the next one goes on after this instruction, and an idle one is passed over.
static void end_turn(void)
{
	__asm__ volatile("pause");
}

static void settle(void)
{
	for (int i = 0; i < SETTLING_TURNS; i++)
		end_turn();
}

static void make_calls(const struct bench *bench, long calls)
{
	for (long i = 0; i < calls; i++) {
		bench->check(bench->loop(1));
		end_turn();
	}
}

static uint64_t count_turns(const struct bench *bench, long calls)
{
	uint64_t start;

	make_calls(bench, WARMING_TURNS);
	start = begin_region();
	make_calls(bench, calls);
	return end_region() - start;
}

static void stay_on(unsigned int cpu)
{
	unsigned long mask = 1ul << cpu;

	if (sys3(SYS_sched_setaffinity, 0, sizeof(mask), &mask) < 0)
		fail("this guest has too few CPUs", "");
}

static void follow_leader(const struct bench *bench, unsigned int cpu) __attribute__((noreturn));
static void follow_leader(const struct bench *bench, unsigned int cpu)
{
	sys2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	stay_on(cpu);
	for (long batch = 0;; turns->ended[cpu].batch = batch) {
		while (turns->begun.batch == batch)
			end_turn();
		batch = turns->begun.batch;
		if (batch == NO_MORE)
			sys1(SYS_exit_group, 0);	// without what the leader had printed
		count_turns(bench, turns->calls);
	}
}

// A process that fails says why, and never ends its batch.
static void wait_for_follower(long cpu, long batch)
{
	for (long turn = 1; turns->ended[cpu].batch != batch; turn++) {
		end_turn();
		if (turn % LONG_WAIT == 0 && sys4(SYS_wait4, -1, NULL, WNOHANG, NULL) > 0)
			fail("the process on another CPU has ended", "");
	}
}

static uint64_t lead_batch(const struct bench *bench, long cpus, long calls)
{
	const long batch = turns->begun.batch + 1;
	uint64_t taken;

	turns->calls = calls;
	__asm__ volatile(REGION_MARK(REGION_ARM));
	turns->begun.batch = batch;
	taken = count_turns(bench, calls);
	for (long cpu = 1; cpu < cpus; cpu++)
		wait_for_follower(cpu, batch);
	return taken;
}

static void run_batch(const struct bench *bench, long cpus, long calls)
{
	for (long disturbed = 0; disturbed < ATTEMPTS; disturbed++) {
		struct disturbance before, after;
		uint64_t taken;

		if (disturbed)
			wait_for_tick();
		// The others have their tick's interrupt behind them as well.
		settle();
		before = look_around();
		taken = lead_batch(bench, cpus, calls);
		after = look_around();
		if (!is_same(&before, &after, calls, (int)disturbed))
			continue;
		__asm__ volatile(REGION_MARK(REGION_KEEP));
		print_field("turns calls=", (uint64_t)calls);
		print_field(" tsc=", taken);
		print_field(" disturbed=", (uint64_t)disturbed);
		print(1, "\n");
		return;
	}
	fail("no batch without an interrupt, a page fault or another task in 200 attempts: ",
	     "the calls of all CPUs take too long for the time between two ticks, or sleep, or touch new memory");
}

static void run_turns(const struct bench *bench, long cpus, long calls, long repeats)
{
	turns = map_memory(-1, sizeof(*turns), 0, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
	if (is_error(turns))
		fail("no memory to share", "");
	if (cpus > MOST_CPUS)
		fail("too many CPUs", "");
	bench->check(bench->loop(WARM_UP_CALLS));
	stay_on(0);
	for (long cpu = 1; cpu < cpus; cpu++) {
		long pid = sys0(SYS_fork);

		if (pid == 0)
			follow_leader(bench, (unsigned int)cpu);
		if (pid < 0)
			fail("cannot start a process for each CPU", "");
	}
	lead_batch(bench, cpus, calls);
	run_batch(bench, cpus, calls / FEWER_TURNS);
	for (long i = 0; i < repeats; i++)
		run_batch(bench, cpus, calls);
	turns->begun.batch = NO_MORE;
	for (long cpu = 1; cpu < cpus; cpu++)
		sys4(SYS_wait4, -1, NULL, 0, NULL);
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

// To a file that exists: a parameter of a module.
static void tell(const char *file, int pid)
{
	int fd = file ? (int)sys3(SYS_open, file, O_WRONLY, 0) : -1;

	if (!file)
		return;
	if (fd < 0)
		fail("cannot open ", file);
	if (pid == NOBODY)
		print(fd, "-1");
	else
		print_number(fd, (uint64_t)pid);
	sys1(SYS_close, fd);
}

static void run_calls(const struct bench *bench, long calls, const char *file)
{
	uint64_t pid = (uint64_t)sys0(SYS_getpid);
	struct results untimed = {0};
	long result;

	tell(file, (int)pid);
	result = note_calls(bench, calls, &untimed);
	tell(file, NOBODY);
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
	long seconds = -1, counted = -1, cpus = 0;
	const char *file = NULL;
	char *live = NULL;

	program_name = bench->name;
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
			fail("expected one of -n -b -r -u -m -w -k -c -s -j with a number, found ", option);
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
	statistics = (int)sys3(SYS_open, "/proc/stat", O_RDONLY, 0);
	if (statistics < 0)
		fail("cannot open /proc/stat", "");
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
