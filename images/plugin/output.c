// SPDX-License-Identifier: GPL-2.0-only
// See output.h.
#include "output.h"
#include "host.h"

enum { OUTPUT_LIMIT = 64 << 20, ERROR_LINE = 160 };

static int output = -1;
static size_t written;
static char buffer[1 << 16];
static size_t buffered;
static bool has_failed;
static const char *failure;

bool open_output(const char *path)
{
	output = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	return output >= 0;
}

void measure_output(void)
{
	written = (size_t)lseek(output, 0, SEEK_END);
}

bool has_output_room(size_t size)
{
	return written + size <= OUTPUT_LIMIT;
}

void flush_output(void)
{
	for (size_t done = 0; done < buffered;) {
		long size = write(output, buffer + done, buffered - done);

		if (size <= 0) {
			has_failed = true;
			break;
		}
		done += (size_t)size;
	}
	buffered = 0;
}

void put(const char *text, size_t size)
{
	if (buffered + size > sizeof(buffer))
		flush_output();
	memcpy(buffer + buffered, text, size);
	buffered += size;
	written += size;
}

static void write_error(void)
{
	char line[ERROR_LINE];

	put(line, (size_t)snprintf(line, sizeof(line), "error %s\n", failure));
	flush_output();
}

void report_error(const char *reason)
{
	if (has_failed)
		return;
	failure = reason;
	has_failed = true;
	write_error();
}

bool output_has_failed(void)
{
	return has_failed;
}

void repeat_error(void)
{
	if (failure)
		write_error();
}
