// SPDX-License-Identifier: GPL-2.0-only
// What one gettimeofday costs: the system call itself, never the vDSO's function.
//
//   gtodbench [-e ENTRY] -n CALLS [-b BATCH] [-r REPEATS]
//       REPEATS samples of CALLS calls each, made of batches of at most BATCH calls. A batch begins right after a timer
//       tick; one that an interrupt, a page fault, another task or a new second fell into is thrown away and run again.
//   gtodbench [-e ENTRY] -c CALLS
//       exactly CALLS calls, neither timed nor repeated: for counting and checking the hits of a probe
//   gtodbench [-e ENTRY] -s SECONDS [-r REPEATS]
//       as in 2005: calls for SECONDS seconds, counts them and prints the average
//   ENTRY: auto (what a C library takes: sysenter or syscall where there is one), int80, sysenter, syscall
//
// Output, one line each:
//   entry NAME
//   empty tsc=T ns=N                                              a batch of no calls: what every batch costs
//   sample I calls=C batches=B tsc=T ns=N disturbed=D             sums over the batches
//   run I calls=C ns=N average=A                                  with -s; A in whole nanoseconds
//   called calls=N pid=P tv=0xT tz=0xZ number=NR                  with -c; what every call passed, and to which number
#include "runtime.h"

enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 1, RUSAGE_SELF = 0, AT_SYSINFO = 32 };
enum { ATTEMPTS = 200, WARM_UP_CALLS = 100, SECONDS_MODE_BATCH = 1000 };
// Two readings of the TSC in a row lie a few instructions apart; a tick's handler takes ten thousand.
enum { TICK_GAP = 2000 };
// No tick for so many TSC units means that there is none to wait for (10 ms ticks, 5 GHz).
enum { TICK_WAIT = 100 * 1000 * 1000 };

#ifdef __i386__
enum { GETTIMEOFDAY_INT80 = SYS_gettimeofday };
#else
enum { GETTIMEOFDAY_INT80 = 78 }; // int $0x80 takes the 32-bit numbers
#endif

typedef long entry_loop(long calls);

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
};

static long time_value[2];
static int statistics;

// The loops are wholly in assembly so that a batch of n calls is exactly n times one round and a constant.
#define ROUNDS(body) "jmp 2f\n1:" body "\n2: dec %[calls]\njns 1b\n"

static long int80_loop(long calls)
{
	long result = 0;

	__asm__ volatile(ROUNDS("mov %[number], %%eax\nint $0x80")
			 : "+a"(result), [calls] "+D"(calls)
			 : [number] "i"(GETTIMEOFDAY_INT80), "b"(time_value), "c"(0)
			 : "memory", "cc"
#ifdef __x86_64__
			 , "r8", "r9", "r10", "r11"
#endif
	);
	return (int)result;
}

#ifdef __i386__
static long vsyscall;

static long sysenter_loop(long calls)
{
	long result = 0;

	__asm__ volatile(ROUNDS("mov %[number], %%eax\ncall *%[entry]")
			 : "+a"(result), [calls] "+D"(calls)
			 : [number] "i"(SYS_gettimeofday), [entry] "m"(vsyscall), "b"(time_value), "c"(0)
			 : "memory", "cc");
	return result;
}

// The kernel's entry page uses sysenter only on a CPU that has it: look at the code it offers.
static int has_sysenter(char **environment)
{
	const long *auxiliary;
	const unsigned char *code;

	while (*environment++)
		;
	for (auxiliary = (const long *)environment; auxiliary[0]; auxiliary += 2)
		if (auxiliary[0] == AT_SYSINFO)
			vsyscall = auxiliary[1];
	code = (const unsigned char *)vsyscall;
	for (int i = 0; code && i < 24; i++)
		if (code[i] == 0x0f && code[i + 1] == 0x34)
			return 1;
	return 0;
}
#else
static long syscall_loop(long calls)
{
	long result = 0;

	__asm__ volatile(ROUNDS("mov %[number], %%eax\nsyscall")
			 : "+a"(result), [calls] "+b"(calls)
			 : [number] "i"(SYS_gettimeofday), "D"(time_value), "S"(0)
			 : "memory", "cc", "rcx", "r11");
	return result;
}
#endif

static void fail(const char *what, const char *about) __attribute__((noreturn));
static void fail(const char *what, const char *about)
{
	print(2, "gtodbench: ");
	print(2, what);
	print(2, about);
	print(2, "\n");
	exit_program(2);
}

static long number_of(entry_loop *loop)
{
	return loop == int80_loop ? GETTIMEOFDAY_INT80 : SYS_gettimeofday;
}

static entry_loop *choose_entry(const char **name, char **environment)
{
	int automatic = text_equal(*name, "auto");

#ifdef __i386__
	if ((automatic || text_equal(*name, "sysenter")) && has_sysenter(environment)) {
		*name = "sysenter";
		return sysenter_loop;
	}
#else
	(void)environment;
	if (automatic || text_equal(*name, "syscall")) {
		*name = "syscall";
		return syscall_loop;
	}
#endif
	if (automatic || text_equal(*name, "int80")) {
		*name = "int80";
		return int80_loop;
	}
	fail("this CPU and kernel have no system call entry ", *name);
}

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

static int is_same(const struct disturbance *before, const struct disturbance *after)
{
	return after->interrupts == before->interrupts && after->faults == before->faults &&
	       after->switches == before->switches && after->second == before->second &&
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

static struct timing time_batch(entry_loop *loop, long calls)
{
	struct timing result;
	uint64_t clock = read_clock(), tsc = read_tsc();
	long error = loop(calls);

	result.tsc = read_tsc() - tsc;
	result.ns = read_clock() - clock;
	if (error)
		fail("gettimeofday failed", "");
	return result;
}

// One batch that nothing fell into; counts those that something did.
static struct timing clean_batch(entry_loop *loop, long calls, long *disturbed)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct disturbance before, after;
		struct timing result;

		wait_for_tick();
		before = look_around();
		result = time_batch(loop, calls);
		after = look_around();
		if (is_same(&before, &after))
			return result;
		++*disturbed;
	}
	fail("no batch without an interrupt in 200 attempts; ", "make the batches (-b) smaller");
}

static void print_field(const char *name, uint64_t value)
{
	print(1, name);
	print_number(1, value);
}

static void print_address(const char *name, const void *address)
{
	unsigned long value = (unsigned long)address;
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

static void run_calls(entry_loop *loop, long calls)
{
	if (loop(calls))
		fail("gettimeofday failed", "");
	print_field("called calls=", (uint64_t)calls);
	print_field(" pid=", (uint64_t)sys0(SYS_getpid));
	print_address(" tv=", time_value);
	print_address(" tz=", NULL);
	print_field(" number=", (uint64_t)number_of(loop));
	print(1, "\n");
}

static void run_samples(entry_loop *loop, long calls, long batch, long repeats)
{
	long ignored = 0;
	struct timing empty;

	loop(WARM_UP_CALLS);
	clean_batch(loop, 0, &ignored);
	empty = clean_batch(loop, 0, &ignored);
	print_field("empty tsc=", empty.tsc);
	print_field(" ns=", empty.ns);
	print(1, "\n");
	for (long i = 0; i < repeats; i++) {
		struct timing sum = {0, 0};
		long batches = 0, disturbed = 0;

		for (long left = calls; left; batches++) {
			long size = left < batch ? left : batch;
			struct timing one = clean_batch(loop, size, &disturbed);

			sum.tsc += one.tsc;
			sum.ns += one.ns;
			left -= size;
		}
		print_field("sample ", (uint64_t)i);
		print_field(" calls=", (uint64_t)calls);
		print_field(" batches=", (uint64_t)batches);
		print_field(" tsc=", sum.tsc);
		print_field(" ns=", sum.ns);
		print_field(" disturbed=", (uint64_t)disturbed);
		print(1, "\n");
	}
}

static void run_seconds(entry_loop *loop, long seconds, long repeats)
{
	for (long i = 0; i < repeats; i++) {
		uint64_t start = read_clock(), spent;
		uint32_t calls = 0;

		do {
			if (loop(SECONDS_MODE_BATCH))
				fail("gettimeofday failed", "");
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

int program(int argc, char **argv, char **environment)
{
	const char *entry = "auto";
	long calls = -1, batch = -1, repeats = 1, seconds = -1, counted = -1;

	for (int i = 1; i < argc; i += 2) {
		char *option = argv[i], *value = argv[i + 1];
		long number = i + 1 < argc ? parse_number(value) : -1;

		if (i + 1 < argc && text_equal(option, "-e"))
			entry = value;
		else if (number < 1)
			fail("expected -e ENTRY or one of -n -b -r -c -s with a number above 0, found ", option);
		else if (text_equal(option, "-n"))
			calls = number;
		else if (text_equal(option, "-b"))
			batch = number;
		else if (text_equal(option, "-r"))
			repeats = number;
		else if (text_equal(option, "-c"))
			counted = number;
		else if (text_equal(option, "-s"))
			seconds = number;
		else
			fail("unknown option ", option);
	}
	if ((calls > 0) + (seconds > 0) + (counted > 0) != 1)
		fail("give one of -n CALLS, -c CALLS and -s SECONDS", "");
	statistics = (int)sys3(SYS_open, "/proc/stat", O_RDONLY, 0);
	if (statistics < 0)
		fail("cannot open /proc/stat", "");
	entry_loop *loop = choose_entry(&entry, environment);

	print(1, "entry ");
	print(1, entry);
	print(1, "\n");
	if (counted > 0)
		run_calls(loop, counted);
	else if (seconds > 0)
		run_seconds(loop, seconds, repeats);
	else
		run_samples(loop, calls, batch < 0 ? calls : batch, repeats);
	return 0;
}
