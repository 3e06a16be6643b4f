// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a C file of your own defines to be measured: workload(), which is called again and again, and what it may use. It
 * is one file with those that it includes, and has no C library. What it has:
 *
 * * each system call by its name: %SYS_read, and %__NR_read as in the kernel's asm/unistd.h. The numbers are those of the
 *   guest's architecture, of Linux 7.3: no header of the host decides them. Where an architecture lacks a call, the name
 *   is not defined: #ifdef %SYS_newfstatat;
 * * the kernel's own headers (uapi) as the host has them, in any order: linux/fcntl.h, linux/mman.h, linux/eventpoll.h,
 *   asm/signal.h. Package linux-libc-dev has them for both architectures. A run records those that a workload includes
 *   among its sources, and another version of them makes another program;
 * * the functions of runtime.h, below, and the compiler's stddef.h, stdint.h and stdbool.h.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "runtime.h"

/**
 * workload() - one call: what is timed
 *
 * It enters the probe point as often as the key hits sets, once by default, and must do the same each time. What the
 * kernel does besides in some calls, such as to fetch a slab, is measured apart. A process makes a hundred calls before
 * the first timed one.
 */
void workload(void);

/**
 * workload_setup() - called once, before anything is timed or counted
 *
 * It need not be defined. It opens files, for example. Each process of a measurement calls it, one after the other in one
 * guest: what it leaves in files is there for the next one.
 */
void workload_setup(void);

#endif
