// SPDX-License-Identifier: GPL-2.0-only
// The reader of what BPF programs send to user space, in place of their tool's: of ring buffers and perf event arrays.
//
// A perf event array needs an event for each CPU, opened by a process that has its pages mapped as long as somebody writes;
// without one bpf_perf_event_output() fails with ENOENT. Such a process, in the background, also makes room or takes it
// away: the reader's position decides that, whatever was written.
#ifndef MAP_READER_H
#define MAP_READER_H

#include "bpf_abi.h"

// Opens the ring buffers and perf event arrays that are pinned as FOLDER/map-0, FOLDER/map-1 and so on, and events for the
// arrays. Returns how many of them there are.
int open_readers(const char *folder);
// How many events those are.
int opened_events(void);
// Makes room in perf event arrays that are short of it, and notes what is in them.
void begin_reading(void);
// Leaves ring buffers and perf event arrays without room for one more record, and notes what is in them.
void fill_buffers(void);
// Writes a line for each perf event array, behind fill_buffers() for each ring buffer, too, as map_trial.h says: of the
// fullest CPU, in bytes.
void show_read(int file);

#endif
