// SPDX-License-Identifier: GPL-2.0-only
// The open files of another process.
#ifndef PROCESS_FILES_H
#define PROCESS_FILES_H

#include "runtime.h"

enum { MOST_PROCESSES = 1000000, MOST_FILES = 1024, E_SRCH = 3, PROCESS_PATH = 40 };

// Writes "/proc/PID/NAME" of a process below MOST_PROCESSES; returns its end, where a 0 is.
char *path_of_process(char to[PROCESS_PATH], long pid, const char *name);

// A descriptor of the process for copy_of_file(), or a negative errno.
long open_process(long pid);
// What the process has open there, as /proc says: "anon_inode:bpf-map". Returns its length, 0 where it has nothing.
long name_of_file(long pid, uint32_t file, char *to, size_t room);
// A copy of a descriptor of the process (pidfd_getfd, since Linux 5.6), or a negative errno.
long copy_of_file(long process, uint32_t file);

#endif
