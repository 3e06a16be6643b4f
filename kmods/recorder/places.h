/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where does a recorder record the standard kernel events, and with which result?
 *
 * A place is what is registered once: a function that has a probe, or the markers
 * of one name. A site is where bytes change for it: a function has one, a marker
 * may have several.
 *
 * <debugfs>/<module's name>/report lists both, in lines of ASCII; "1" written to
 * the module's parameter "stop" takes all probes out and compares the bytes.
 */
#ifndef LAB_PLACES_H
#define LAB_PLACES_H

#include <linux/percpu.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include "ring.h"

#define RECORDER_PLACES_MAX	128

struct place {
	const char *symbol;	/* the function's name, or the marker's */
	unsigned int event;	/* its number among event_names[] */
};

/* The recorder's main file defines these ... */
extern const char mechanism[];
extern const char *const event_names[];
extern const unsigned int event_count;
extern const struct place places[];
extern const unsigned int place_count;

/* ... and these. A negative errno leaves nothing in; the reasons are in the kernel log. Both may sleep. */
int put_in(void);
/* On return no handler runs, nor will one. */
void take_out(void);
/* Hits of a place whose handler did not run. Not valid after take_out(). */
unsigned long missed_hits(unsigned int place);

DECLARE_PER_CPU(unsigned long [RECORDER_PLACES_MAX], place_hits);

/* What every handler does, for all mechanisms. With preemption off. */
static __always_inline void record_hit(unsigned int place, unsigned int event, unsigned long address,
				       unsigned long first, unsigned long second)
{
	this_cpu_inc(place_hits[place]);
	record_event(LAB_EVENT_STANDARD, event, address, first, second, 0, 0);
}

/* The first two parameters of a function, at its entry. */
static __always_inline unsigned long first_parameter(const struct pt_regs *regs)
{
#ifdef CONFIG_X86_32
	return regs->ax;
#else
	return regs->di;
#endif
}

static __always_inline unsigned long second_parameter(const struct pt_regs *regs)
{
#ifdef CONFIG_X86_32
	return regs->dx;
#else
	return regs->si;
#endif
}

/* A system call's number; the only parameter of its function points to the user's registers. */
static __always_inline unsigned long call_number(unsigned long user)
{
	return ((const struct pt_regs *)user)->orig_ax;
}

/*
 * Finds the entry of each place's function, the instruction after endbr and the
 * ftrace nop, and keeps its bytes as a site. A negative errno where any is
 * missing; the log has a line for each missing one. May sleep.
 */
int find_entries(void);
unsigned long entry_of(unsigned int place);

/* Keeps the bytes at address, to report and compare them. -ENOSPC, with the reason in the log, where it has no room. */
int add_site(const char *symbol, const void *address, unsigned int size);

/* The byte at the entry of a place's function now. */
u8 live_byte(unsigned int place);

/* Whether all sites have the bytes again that add_site() kept. */
bool is_restored(void);

/* For the module's init and exit functions. */
int places_begin(void);
void places_end(void);

#endif
