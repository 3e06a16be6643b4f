// SPDX-License-Identifier: GPL-2.0-only
// What the system calls of workload() return. A tracer sees all of them, however they are made, without a change to what
// is timed.
#ifndef WATCHED_H
#define WATCHED_H

// Makes so many calls in a process of their own, which is traced (ptrace(2)), and prints what they returned. Output, one
// line each:
//   watched bits=W calls=N kinds=K signal=S W bits of a word; N calls that returned; K different system calls, 17 where
//                                           there are more than the 16 that follow; the signal that ended the process,
//                                           or 0
//   call NUMBER results watched ...         as in results.h
// Returns the program's exit status.
int watch_calls(long calls, void (*prepare)(void), long (*loop)(long calls));

#endif
