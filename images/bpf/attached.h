// SPDX-License-Identifier: GPL-2.0-only
// Which BPF programs has another process attached, and where?
#ifndef ATTACHED_H
#define ATTACHED_H

#include "bpf_abi.h"

// Prints a line for each, "ID KIND NAME OFFSET": a program's number, what it is attached to (kprobe, kretprobe,
// tracepoint, raw-tracepoint, uprobe, uretprobe, fentry, fexit, or other), the name of the function, the tracepoint or
// the file there ("-" where the kernel does not say), and the offset in bytes. Returns a negative errno where the
// process is not there.
long show_attached(long pid);

#endif
