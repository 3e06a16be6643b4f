// SPDX-License-Identifier: GPL-2.0-only
// See turns.h.
#include "turns.h"
#include "disturbance.h"
#include "failure.h"
#include "region_clock.h"

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
		before = count_disturbances();
		taken = lead_batch(bench, cpus, calls);
		after = count_disturbances();
		if (!is_undisturbed(&before, &after, calls, (int)disturbed))
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

void run_turns(const struct bench *bench, long cpus, long calls, long repeats)
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
