// SPDX-License-Identifier: GPL-2.0-only
// Starts a program of another author in the background, as a terminal's user would, but without a terminal.
#ifndef BACKGROUND_H
#define BACKGROUND_H

#include "runtime.h"

// Starts argv in a session of its own and returns its process. All signals have their default action: a shell makes what
// it starts in the background deaf to Ctrl-C, unless it has a terminal. FILE gets its output, at most so many bytes, and
// its input is empty. A program that cannot be started says so there, and ends.
long start_in_background(const char *file, long bytes, char **argv, char **environment);

// Waits until all processes of a session, which is called like its leader, wait for something and take no processor time,
// for some looks in a row. Returns "waiting TICKS", the processor time that they have taken, "ended" where the leader has
// ended, or "busy" where they are still at work after two minutes.
const char *wait_until_rest(long session);
// Prints a line for each process of a session: its number.
void show_session(long session);

#endif
