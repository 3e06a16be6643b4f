// SPDX-License-Identifier: GPL-2.0-only
// Which BPF programs has another process attached, and where?
#ifndef ATTACHED_H
#define ATTACHED_H

#include "bpf_abi.h"

// Prints a line for each, "ID LINK ATTACH_TYPE FLAGS PLACES OFFSET NAME": a program's number; how it is attached, in the
// words and numbers of probes.yaml (LINK is "other" for anything else, FLAGS 255 where the kernel does not say); to how
// many places; the offset in bytes, and the name of the function, the tracepoint or the file ("-" where the kernel does
// not say, or there are many). Returns a negative errno where the process is not there.
long show_attached(long pid);

#endif
