// SPDX-License-Identifier: GPL-2.0-only
// See background.h.
#include "background.h"
#include "bpf_abi.h"
#include "process_files.h"

enum { LIMIT_FILE_SIZE = 1, SIGNALS = 64, PATH_SIZE = 4096, NOT_STARTED = 127 };
enum { APPEND = 02000 };	// O_APPEND: what one process of several writes is not written over

// struct sigaction of the kernel, for all words of either architecture.
static const unsigned long default_action[8];

static void reset_signals(void)
{
	static const unsigned long none[2];

	for (int signal = 1; signal <= SIGNALS; signal++)
		sys4(SYS_rt_sigaction, signal, default_action, NULL, 8);
	sys4(SYS_rt_sigprocmask, 2, none, NULL, 8);	// SIG_SETMASK
}

static const char *value_of(char **environment, const char *name)
{
	size_t length = text_length(name);

	for (; *environment; environment++) {
		size_t i = 0;

		while (i < length && (*environment)[i] == name[i])
			i++;
		if (i == length && (*environment)[i] == '=')
			return *environment + i + 1;
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

static int has_slash(const char *name)
{
	while (*name && *name != '/')
		name++;
	return *name == '/';
}

// Does not return if it is found and may be executed.
static long execute(char **argv, char **environment)
{
	static char path[PATH_SIZE];
	const char *folder = value_of(environment, "PATH");
	long error = -E_NOENT;

	if (has_slash(argv[0]))
		return sys3(SYS_execve, argv[0], argv, environment);
	while (*folder) {
		size_t length = 0;

		while (folder[length] && folder[length] != ':')
			length++;
		if (length + text_length(argv[0]) + 2 <= sizeof(path)) {
			long answer;

			memcpy(path, folder, length);
			path[length] = '/';
			memcpy(path + length + 1, argv[0], text_length(argv[0]) + 1);
			answer = sys3(SYS_execve, path, argv, environment);
			error = answer == -E_NOENT ? error : answer;
		}
		folder += length + (folder[length] == ':');
	}
	return error;
}

long start_in_background(const char *file, long bytes, char **argv, char **environment)
{
	const unsigned long limit[2] = {(unsigned long)bytes, (unsigned long)bytes};
	long process = sys0(SYS_fork), input, output, error;

	if (process)
		return process;
	input = sys3(SYS_open, "/dev/null", O_RDONLY, 0);
	output = sys3(SYS_open, file, O_WRONLY | O_CREAT | O_TRUNC | APPEND, 0600);
	if (input < 0 || output < 0)
		exit_program(NOT_STARTED);
	sys2(SYS_dup2, input, 0);
	sys2(SYS_dup2, output, 1);
	sys2(SYS_dup2, output, 2);
	for (int old = 3; old < 64; old++)
		sys1(SYS_close, old);
	sys0(SYS_setsid);
	reset_signals();
	sys2(SYS_setrlimit, LIMIT_FILE_SIZE, limit);
	error = execute(argv, environment);
	print(2, argv[0]);
	print(2, ": cannot be started: error ");
	print_number(2, (uint64_t)-error);
	print(2, "\n");
	exit_program(NOT_STARTED);
}

// Of the guest's own clock.
enum { PAUSE = 50 * 1000 * 1000, QUIET_LOOKS = 4, MOST_LOOKS = 2400 };
enum { STAT_SIZE = 1024, ENTRIES_SIZE = 1 << 15, FIELDS_TO_SESSION = 3, FIELDS_TO_TIME = 8, NAME_AT = 19, LENGTH_AT = 16 };

struct activity {
	int is_there, is_waiting, is_shown;
	uint64_t ticks;
};

static uint64_t read_decimal(const char **text)
{
	uint64_t value = 0;

	for (; **text >= '0' && **text <= '9'; ++*text)
		value = value * 10 + (uint64_t)(**text - '0');
	return value;
}

static void skip_fields(const char **at, int fields)
{
	for (; **at && fields; ++*at)
		fields -= **at == ' ';
}

// Adds a process of the session: of /proc/PID/stat, whose 2nd field is in brackets, the 3rd field is the state, the 6th
// the session, and the 14th and 15th are ticks.
static void add_process(struct activity *sum, long pid, long session)
{
	static char text[STAT_SIZE + 1];
	char path[PROCESS_PATH], state;
	const char *at = text;
	long size;

	path_of_process(path, pid, "stat");
	size = file_content(path, text, STAT_SIZE);
	if (size <= 0)
		return;
	text[size] = 0;
	for (const char *place = text; *place; place++)
		if (*place == ')')
			at = place + 1;
	at += *at == ' ';
	state = *at;
	skip_fields(&at, FIELDS_TO_SESSION);
	if (state == 'Z' || state == 'X' || (long)read_decimal(&at) != session)
		return;
	if (sum->is_shown) {
		print_number(1, (uint64_t)pid);
		print(1, "\n");
	}
	skip_fields(&at, FIELDS_TO_TIME);
	sum->ticks += read_decimal(&at);
	at += *at == ' ';
	sum->ticks += read_decimal(&at);
	sum->is_waiting &= state == 'S';
	sum->is_there |= pid == session;
}

// Those that it has started have larger numbers.
static struct activity look_at(long session, int is_shown)
{
	static char entries[ENTRIES_SIZE];
	struct activity sum = {.is_waiting = 1, .is_shown = is_shown};
	long folder = sys3(SYS_open, "/proc", O_RDONLY | O_CLOEXEC, 0), size;

	while ((size = sys3(SYS_getdents64, folder, entries, sizeof(entries))) > 0)
		for (long at = 0; at < size; at += *(const uint16_t *)(entries + at + LENGTH_AT)) {
			long pid = parse_number(entries + at + NAME_AT);

			if (pid >= session && pid < MOST_PROCESSES)
				add_process(&sum, pid, session);
		}
	sys1(SYS_close, folder);
	return sum;
}

void show_session(long session)
{
	look_at(session, 1);
}

const char *wait_until_rest(long session)
{
	static char answer[40] = "waiting ";
	const long pause[2] = {0, PAUSE};
	uint64_t ticks = 0;

	for (int i = 0, quiet = 0; quiet < QUIET_LOOKS; i++) {
		struct activity now = look_at(session, 0);

		if (!now.is_there)
			return "ended";
		if (i == MOST_LOOKS)
			return "busy";
		quiet = now.is_waiting && now.ticks == ticks ? quiet + 1 : 0;
		ticks = now.ticks;
		sys2(SYS_nanosleep, pause, NULL);
	}
	char digits[24], *end = answer + 8;
	size_t count = 0;

	do
		digits[count++] = (char)('0' + ticks % 10);
	while (ticks /= 10);
	while (count)
		*end++ = digits[--count];
	*end = 0;
	return answer;
}
