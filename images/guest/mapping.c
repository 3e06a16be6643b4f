// SPDX-License-Identifier: GPL-2.0-only
// See mapping.h.
#include "mapping.h"

static unsigned long parse_hex(const char **text)
{
	unsigned long value = 0;

	for (;; ++*text) {
		if (**text >= '0' && **text <= '9')
			value = value * 16 + (unsigned long)(**text - '0');
		else if (**text >= 'a' && **text <= 'f')
			value = value * 16 + (unsigned long)(**text - 'a' + 10);
		else
			return value;
	}
}

// A line:
//   7f1c34a00000-7f1c34b55000 r-xp 00026000 fe:00 1234       /usr/lib/x86_64-linux-gnu/libc.so.6
unsigned long find_mapping(char *maps, const char *file, unsigned long offset)
{
	char *line, *next;

	for (line = maps; *line; line = next) {
		const char *at = line;
		unsigned long start = parse_hex(&at), end, into;
		int is_executed;

		for (next = line; *next && *next != '\n'; next++)
			;
		if (*next)
			*next++ = 0;
		at++;
		end = parse_hex(&at);
		is_executed = text_length(at) > 6 && at[3] == 'x';
		at += is_executed ? 6 : 0;
		into = offset - parse_hex(&at);
		while (*at && *at != '/')
			at++;
		if (is_executed && into < end - start && text_equal(at, file))
			return start + into;
	}
	return 0;
}

void print_hex(const char *name, const unsigned char *bytes, long size)
{
	char digits[] = "00";

	print(1, name);
	for (long i = 0; i < size; i++) {
		digits[0] = "0123456789abcdef"[bytes[i] / 16];
		digits[1] = "0123456789abcdef"[bytes[i] % 16];
		print(1, digits);
	}
	print(1, "\n");
}
