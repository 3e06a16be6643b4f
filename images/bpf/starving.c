// SPDX-License-Identifier: GPL-2.0-only
// See starving.h.
#include "starving.h"
#include "commands.h"
#include "lists.h"

// So much is left, of what the kernel does not keep for itself; so much is taken at a time, far from the end and near.
enum { LEFT_KIB = 512, FAR_KIB = 8192, FAR = 1 << 20, NEAR = 1 << 16, MAP_NORESERVE = 0x4000, MADV_DONTFORK = 10 };
enum { SPARES = 8, SPARE = 4 << 20, SIGKILL = 9 };
static const size_t most = 1UL << 36;
static const char memory[] = "/proc/meminfo";

static long available(void)
{
	return checked(number_behind(memory, "MemAvailable:"), "cannot read ", memory);
}

static void set_score(const char *score)
{
	checked(write_to("/proc/self/oom_score_adj", score, text_length(score), 0), "cannot set ", "oom_score_adj");
}

// Processes that the kernel kills next, while the first one still holds what it allocated: with none it would kill the
// guest's init, and panic. Forked before memory is short.
static void fork_spares(long *pids)
{
	static const long forever[2] = {1L << 30, 0}, moment[2] = {0, 1000000};
	volatile int *ready = map_memory(-1, sizeof(*ready), 0, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);

	checked(is_error((const void *)ready) ? (long)ready : 0, "no memory", "");
	for (int i = 0; i < SPARES; i++) {
		pids[i] = checked(sys0(SYS_fork), "cannot fork", "");
		while (pids[i] && *ready <= i)
			sys2(SYS_nanosleep, moment, NULL);
		if (pids[i])
			continue;
		set_score("500");
		memset(room_for(SPARE), 1, SPARE);
		*ready = i + 1;
		sys2(SYS_nanosleep, forever, NULL);
		exit_program(0);
	}
}

static void end_spares(const long *pids)
{
	for (int i = 0; i < SPARES; i++) {
		sys2(SYS_kill, pids[i], SIGKILL);
		sys4(SYS_wait4, pids[i], NULL, 0, NULL);
	}
}

long starve(long (*work)(uint32_t), uint32_t count, int *signal)
{
	char *taken = map_memory(-1, most, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	static const char levels[] = "/proc/sys/kernel/printk";
	// An errno of the kernel's own does not fit into an exit status.
	long *result = map_memory(-1, sizeof(*result), 0, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
	char usual[64];
	int status = 0;
	long spares[SPARES], left, pid, size = checked(file_content(levels, usual, sizeof(usual)), "cannot read ", levels);

	checked(is_error(taken) ? (long)taken : 0, "no memory", "");
	checked(is_error(result) ? (long)result : 0, "no memory", "");
	*result = 0;
	checked(sys3(SYS_madvise, taken, most, MADV_DONTFORK), "cannot keep memory from a process", "");
	fork_spares(spares);
	set_score("-1000");
	checked(write_to("/proc/sys/vm/min_free_kbytes", "1024", 4, 0), "cannot set ", "min_free_kbytes");
	// That the kernel wants memory is what is asked for here, and no trouble that its console should have.
	checked(write_to(levels, "3", 1, 0), "cannot set ", levels);
	for (size_t at = 0; (left = available()) > LEFT_KIB;) {
		const size_t more = left > FAR_KIB ? FAR : NEAR;

		memset(taken + at, 1, more);
		at += more;
	}
	pid = checked(sys0(SYS_fork), "cannot fork", "");
	if (!pid) {
		set_score("1000");
		*result = work(count);
		exit_program(0);
	}
	checked(sys4(SYS_wait4, pid, &status, 0, NULL), "lost the process", "");
	sys2(SYS_munmap, taken, most);
	end_spares(spares);
	write_to(levels, usual, (size_t)size, 0);
	*signal = status & 0x7f;
	return *result;
}
