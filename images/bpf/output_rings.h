// SPDX-License-Identifier: GPL-2.0-only
// How full are the buffers that a process reads its BPF programs' output from?
#ifndef OUTPUT_RINGS_H
#define OUTPUT_RINGS_H

// Prints a line for each, "FILE SIZE USED", in bytes: a ring buffer, or the buffer of a perf event that no program is
// attached to. Returns a negative errno where the process is not there.
long show_rings(long pid);

#endif
