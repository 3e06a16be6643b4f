// SPDX-License-Identifier: GPL-2.0-only
// See disturbance.h.
#include "disturbance.h"
#include "failure.h"
#include "runtime.h"

enum { CLOCK_REALTIME = 0, RUSAGE_SELF = 0, OWN_ATTEMPTS = 3 };
// Two readings of the TSC in a row lie a few instructions apart; a tick's handler takes ten thousand.
enum { TICK_GAP = 2000 };
// No tick for so many TSC units means that there is none to wait for (10 ms ticks, 5 GHz).
enum { TICK_WAIT = 100 * 1000 * 1000 };
// Nanoseconds: two ticks of the slowest usual kind (100 a second) and some more.
enum { NEW_SECOND = 25 * 1000 * 1000 };

static int statistics, interrupts = -1;
// Whether calls fault, or let other tasks run, themselves.
static int is_faulting, is_switching;

static uint64_t read_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

void open_statistics(int makes_irq_work)
{
	statistics = (int)sys3(SYS_open, "/proc/stat", O_RDONLY, 0);
	if (statistics < 0)
		fail("cannot open /proc/stat", "");
	if (!makes_irq_work)
		return;
	interrupts = (int)sys3(SYS_open, "/proc/interrupts", O_RDONLY, 0);
	if (interrupts < 0)
		fail("cannot open /proc/interrupts", "");
}

// The sum over all CPUs of the line "IWI:"; 0 where the kernel has none (CONFIG_IRQ_WORK).
static uint64_t count_irq_work(void)
{
	static char text[1 << 16];
	uint64_t total = 0;
	long size = 0, more;

	sys3(SYS_lseek, interrupts, 0, 0);
	while ((more = sys3(SYS_read, interrupts, text + size, sizeof(text) - 1 - (size_t)size)) > 0)
		size += more;
	text[size] = 0;
	for (const char *at = text; *at; at++) {
		if (at[0] != 'I' || at[1] != 'W' || at[2] != 'I' || at[3] != ':')
			continue;
		for (at += 4; *at == ' ' || (*at >= '0' && *at <= '9');) {
			uint64_t number = 0;

			for (; *at >= '0' && *at <= '9'; at++)
				number = number * 10 + (uint64_t)(*at - '0');
			total += number;
			for (; *at == ' '; at++)
				;
		}
		break;
	}
	return total;
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

struct disturbance count_disturbances(void)
{
	long usage[18 + 16];
	struct disturbance now;
	int64_t time[2] = {0, 0};

	sys2(SYS_clock_gettime64, CLOCK_REALTIME, time);
	now.second = time[0];
	now.nanosecond = time[1];
	now.interrupts = count_interrupts() - (interrupts < 0 ? 0 : count_irq_work());
	sys2(SYS_getrusage, RUSAGE_SELF, usage);
	now.faults = usage[8] + usage[9];
	now.switches = usage[16] + usage[17];
	return now;
}

static int disturbs(long times, long calls, int attempt, int *is_own)
{
	if (attempt >= OWN_ATTEMPTS && calls && times >= calls)
		*is_own = 1;
	return times && !*is_own;
}

int is_undisturbed(const struct disturbance *before, const struct disturbance *after, long calls, int attempt)
{
	int faults = disturbs(after->faults - before->faults, calls, attempt, &is_faulting);
	int switches = disturbs(after->switches - before->switches, calls, attempt, &is_switching);

	return after->interrupts == before->interrupts && !faults && !switches && after->second == before->second &&
	       before->nanosecond > NEW_SECOND;
}

void wait_for_tick(void)
{
	uint64_t start = read_tsc(), last = start, now;

	do {
		now = read_tsc();
		if (now - last > TICK_GAP)
			return;
		last = now;
	} while (now - start < TICK_WAIT);
}
