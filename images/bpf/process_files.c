// SPDX-License-Identifier: GPL-2.0-only
// See process_files.h.
#include "process_files.h"

long open_process(long pid)
{
	return pid > 0 && pid < MOST_PROCESSES ? sys2(SYS_pidfd_open, pid, 0) : -E_SRCH;
}

// Writes a number below a million; returns its end, where a 0 is.
static char *write_number(char *to, uint32_t number)
{
	for (uint32_t unit = 100000; unit; unit /= 10)
		if (number >= unit || unit == 1)
			*to++ = '0' + number / unit % 10;
	*to = 0;
	return to;
}

char *path_of_process(char to[PROCESS_PATH], long pid, const char *name)
{
	char *end;

	memcpy(to, "/proc/", 6);
	end = write_number(to + 6, (uint32_t)pid);
	*end++ = '/';
	memcpy(end, name, text_length(name) + 1);
	return end + text_length(name);
}

long name_of_file(long pid, uint32_t file, char *to, size_t room)
{
	char path[PROCESS_PATH];
	long length;

	write_number(path_of_process(path, pid, "fd/"), file);
	length = sys3(SYS_readlink, path, to, room - 1);
	to[length > 0 ? length : 0] = 0;
	return length > 0 ? length : 0;
}

long copy_of_file(long process, uint32_t file)
{
	return sys3(SYS_pidfd_getfd, process, file, 0);
}
