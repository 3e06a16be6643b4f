// SPDX-License-Identifier: GPL-2.0-only
// See commands.h.
#include "commands.h"

void fail(const char *what, const char *about, long error)
{
	print(1, "attachmany: ");
	print(1, what);
	print(1, about);
	print(1, ": error ");
	print_number(1, (uint64_t)-error);
	print(1, "\n");
	exit_program(1);
}

long checked(long result, const char *what, const char *about)
{
	if (result < 0)
		fail(what, about, result);
	return result;
}

char *put(char *to, const char *text)
{
	size_t length = text_length(text);

	memcpy(to, text, length + 1);
	return to + length;
}

char *put_number(char *to, uint64_t value, uint32_t base)
{
	char digits[24];
	size_t at = sizeof(digits);

	digits[--at] = 0;
	do {
		uint32_t digit;

		value = divide(value, base, &digit);
		digits[--at] = "0123456789abcdef"[digit];
	} while (value);
	return put(to, digits + at);
}

long write_to(const char *path, const char *text, size_t size, int flags)
{
	long fd = sys3(SYS_open, path, O_WRONLY | O_CLOEXEC | flags, 0), error;

	if (fd < 0)
		return fd;
	error = write_all((int)fd, text, size);
	sys1(SYS_close, fd);
	return error;
}
