// SPDX-License-Identifier: GPL-2.0-only
// What programs say of a process that they start or are: its number, and how it ended.
#ifndef PROCESS_H
#define PROCESS_H

enum { NOBODY = -1, CANNOT_EXECUTE = 127 };

// Writes a process' number, or NOBODY, to a file that exists: a parameter of a module. NULL is no file.
void tell_process(const char *file, int pid);
// Prints on standard error how the program ended, by its wait status.
void print_wait_status(int status);

#endif
