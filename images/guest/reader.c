// SPDX-License-Identifier: GPL-2.0-only
// See reader.h.
#include "reader.h"
#include "failure.h"
#include "runtime.h"

enum { SIG_CONT = 18, SIG_STOP = 19 };
// Of the guest's own clock. One that was stopped while it waited for events looks at once.
enum { PAUSE = 20 * 1000 * 1000, LOOKS = 2, SHORT_PAUSE = 1000 * 1000, MOST_PAUSES = 3000 };
enum { FIELDS_TO_TIME = 11, STAT_SIZE = 1024, PATH_SIZE = 48 };

enum { ANY_NUMBER = 0x3fffffff };

// Nothing is known of what is in the buffers at the start.
static long reader, room = ANY_NUMBER, made = ANY_NUMBER;

struct activity {
	char state;
	uint64_t ticks;
};

// The calls may use up all descriptors of the process, so the file is opened before them.
static int activity_file;

static void open_activity(void)
{
	char path[PATH_SIZE] = "/proc/", digits[24];
	size_t end = 6, digit = 0;

	for (long rest = reader; rest; rest /= 10)
		digits[digit++] = (char)('0' + rest % 10);
	while (digit)
		path[end++] = digits[--digit];
	memcpy(path + end, "/stat", 6);
	activity_file = (int)sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);
	if (activity_file < 0)
		fail("the tool has ended before calls were measured", "");
}

void set_reader(long group, long calls)
{
	reader = group;
	room = calls;
	open_activity();
}

long room_of_reader(void)
{
	return room;
}

int has_reader(void)
{
	return reader != 0;
}

static void pause_for(long nanoseconds)
{
	const long pause[2] = {0, nanoseconds};

	sys2(SYS_nanosleep, pause, NULL);
}

static uint64_t read_decimal(const char **text)
{
	uint64_t value = 0;

	for (; **text >= '0' && **text <= '9'; ++*text)
		value = value * 10 + (uint64_t)(**text - '0');
	return value;
}

// Its state and processor time in ticks: the 3rd, 14th and 15th field of /proc/PID/stat, the 2nd of which is in brackets.
static struct activity look(void)
{
	static char text[STAT_SIZE + 1];
	struct activity seen = {0, 0};
	const char *at = text;
	long size;

	sys3(SYS_lseek, activity_file, 0, 0);
	size = sys3(SYS_read, activity_file, text, STAT_SIZE);
	if (size <= 0)
		fail("the tool has ended while calls were measured", "");
	text[size] = 0;
	for (const char *place = text; *place; place++)
		if (*place == ')')
			at = place + 1;
	at += *at == ' ';
	seen.state = *at;
	for (int fields = 0; *at && fields < FIELDS_TO_TIME; at++)
		fields += *at == ' ';
	seen.ticks = read_decimal(&at);
	at += *at == ' ';
	seen.ticks += read_decimal(&at);
	if (seen.state == 'Z')
		fail("the tool has ended while calls were measured", "");
	return seen;
}

int let_read(long calls)
{
	struct activity last = {0, 0};

	made += calls;
	if (!reader || made <= room)
		return 0;
	made = calls + 1;
	sys2(SYS_kill, -reader, SIG_CONT);
	for (int i = 0, quiet = 0; quiet < LOOKS; i++) {
		struct activity now;

		pause_for(PAUSE);
		now = look();
		quiet = now.state == 'S' && now.ticks == last.ticks ? quiet + 1 : 0;
		last = now;
		if (i == MOST_PAUSES)
			fail("the tool does not finish reading what the calls have left", "");
	}
	sys2(SYS_kill, -reader, SIG_STOP);
	for (int i = 0; look().state != 'T'; i++) {
		pause_for(SHORT_PAUSE);
		if (i == MOST_PAUSES)
			fail("the tool cannot be stopped while calls are timed", "");
	}
	return 1;
}
