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
// Prints a line for each program that the process has open, or is linked by what it has open: "ID TYPE TAG NAME", as the
// kernel numbers types (enum bpf_prog_type), with the 8 bytes of its tag in hexadecimal. A program may be there twice.
long show_loaded(long pid);

#endif
