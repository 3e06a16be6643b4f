// SPDX-License-Identifier: GPL-2.0-only
// How a program of the guest's says that it cannot go on.
#ifndef FAILURE_H
#define FAILURE_H

// The name that the program's errors begin with; each program that can fail defines it.
extern const char program_name[];

// Prints "NAME: WHATABOUT" on standard error, and ends the program with status 2.
void fail(const char *what, const char *about) __attribute__((noreturn));

#endif
