// SPDX-License-Identifier: GPL-2.0-only
// See lists.h.
#include "lists.h"

enum { ROOM = 64 << 20, TOO_MANY = 7 };

void *room_for(size_t size)
{
	return map_memory(-1, size, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

// Reads into a buffer of ROOM bytes.
static char *read_into(char *text, const char *path)
{
	long size = is_error(text) ? (long)text : file_content(path, text, ROOM);

	if (size == ROOM)
		size = -TOO_MANY;
	if (size < 0)
		return (char *)size;
	text[size] = 0;
	return text;
}

char *read_list(const char *path)
{
	return read_into(room_for(ROOM), path);
}

// A buffer for what is read repeatedly.
static char *read_again(const char *path)
{
	static char *text;

	if (!text || is_error(text))
		text = room_for(ROOM);
	return read_into(text, path);
}

char *next_word(char **at, char *end)
{
	char *first = *at;

	while (**at && **at != ' ' && **at != '\t' && **at != '\n')
		(*at)++;
	*end = **at;
	if (**at)
		*(*at)++ = 0;
	return first;
}

unsigned long next_hexadecimal(char **at)
{
	unsigned long value = 0;

	for (; (**at >= '0' && **at <= '9') || (**at >= 'a' && **at <= 'f'); (*at)++)
		value = value << 4 | (unsigned long)(**at <= '9' ? **at - '0' : **at - 'a' + 10);
	return value;
}

// The same for decimal digits.
static long decimal(const char *at)
{
	long value = 0;

	for (; *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (*at - '0');
	return value;
}

long count_lines(const char *path)
{
	const char *text = read_again(path);
	long lines = 0;

	if (is_error(text))
		return (long)text;
	for (const char *at = text; *at; at++)
		lines += (at == text || at[-1] == '\n') && *at != '\t';
	return lines;
}

long sum_column(const char *path, int column)
{
	const char *text = read_again(path);
	int at = 0, was_space = 1;
	long sum = 0;

	if (is_error(text))
		return (long)text;
	for (const char *c = text; *c; c++) {
		const int is_space = *c == ' ' || *c == '\t' || *c == '\n';

		if (!is_space && was_space && at++ == column)
			sum += decimal(c);
		if (*c == '\n')
			at = 0;
		was_space = is_space;
	}
	return sum;
}

long number_behind(const char *path, const char *name)
{
	const char *text = read_again(path);
	const size_t length = text_length(name);

	if (is_error(text))
		return (long)text;
	for (const char *at = text; *at; at++) {
		size_t same = 0;

		while (same < length && at[same] == name[same])
			same++;
		if (same != length || (at > text && at[-1] != '\n'))
			continue;
		for (at += length; *at == ' ';)
			at++;
		return decimal(at);
	}
	return -E_NOENT;
}
