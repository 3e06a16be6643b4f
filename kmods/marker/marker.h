/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel markers after the proposal of 2006: a place in the code that is told
 * something by name, and that a probe may be connected to while it runs. This is
 * a module's code; the kernel's own is built with this very file where it has
 * markers (images/patches/markers.patch), and its linker script is their table.
 *
 *	MARKERS(my_markers);			once in a file, before the first marker
 *	MARK(my_event, "%d %p", number, pointer);
 *
 * A marker to which nothing is connected costs a load, a test and a branch that
 * is not taken. The optimized flavour (MARK) loads an immediate value, which is
 * patched in the instruction itself; the generic one (MARK_GENERIC) loads a byte
 * from memory. The format is told and compared; the compiler checks that what is
 * passed fits it, as for printk(). Markers of one name are connected together.
 */
#ifndef LAB_MARKER_H
#define LAB_MARKER_H

#include <linux/compiler.h>
#include <linux/preempt.h>
#include <linux/stringify.h>
#include <linux/types.h>
#include <asm/asm.h>

/* A probe has the marker's format and arguments; it runs with preemption off. */
typedef void marker_probe(const char *format, ...);

struct marker {
	const char *name;
	const char *format;
	/* What the marker calls; marker_no_probe() while nothing is connected. */
	marker_probe *call;
	u8 armed;		/* loaded by the generic flavour */
};

/* Where a marker is in the code: the generic flavour has no immediate value. */
struct marker_site {
	struct marker *marker;
	u8 *load;		/* mov $0, %al, whose second byte is the immediate value */
	u8 *passed;		/* where the code goes on without a probe */
	u8 *taken;		/* where it goes with one */
};

struct marker_table {
	struct marker_site *begin, *end;
};

void marker_no_probe(const char *format, ...);

/* Never called: for the compiler to compare a format with what is passed. */
static inline __printf(1, 2) void marker_check_format(const char *format, ...)
{
}

/**
 * marker_connect() - connect a probe to all markers of a name
 * @table: the markers, as MARKERS() names them
 * @name: the markers' name
 * @format: must be theirs; NULL leaves it to the probe to check what it gets
 * @probe: has the format and the arguments; runs with preemption off
 *
 * Context: may sleep.
 * Return: 0; -ENOENT: no such marker; -EINVAL: another format, or they have
 * different ones; -EBUSY: a probe is connected; -EOPNOTSUPP: the kernel lacks a
 * function that markers need. The reason is in the kernel log.
 */
int marker_connect(const struct marker_table *table, const char *name, const char *format,
		   marker_probe *probe);

/**
 * marker_disconnect() - take the probe from all markers of a name
 * @table: the markers, as MARKERS() names them
 * @name: the markers' name
 *
 * Context: may sleep. On return no CPU runs the probe.
 * Return: 0; -ENOENT where nothing is connected.
 */
int marker_disconnect(const struct marker_table *table, const char *name);

/**
 * marker_list() - list the sites of a table
 * @table: the markers, as MARKERS() names them
 * @page: for a line each: "name flavour connected load-address flag-address format"
 *
 * Return: the number of bytes written.
 */
int marker_list(const struct marker_table *table, char *page);

/* The table of a file's markers, in the order of the code. */
#define MARKERS(table)								\
asm(".pushsection __markers, 0, \"aw\", @progbits\n"				\
    _ASM_ALIGN "\n"								\
    __stringify(table) "_begin:\n"						\
    "	.popsection\n"								\
    "	.pushsection __markers, 2, \"aw\", @progbits\n"				\
    __stringify(table) "_end:\n"						\
    "	.popsection\n");							\
extern struct marker_site table##_begin[], table##_end[];			\
static const struct marker_table __maybe_unused table = { table##_begin, table##_end }

/* What the unlikely path does: the call itself, within a guard against its being preempted. */
#define MARKER_CALL(marker, format, args...)					\
	do {									\
		if (0)								\
			marker_check_format(format, ##args);			\
		preempt_disable();						\
		READ_ONCE((marker).call)(format, ##args);			\
		preempt_enable();						\
	} while (0)

#define __MARKER(mark_name, mark_format)					\
	static struct marker __lab_mark __used __section("__marker_data") = {	\
		.name = __stringify(mark_name),					\
		.format = mark_format,						\
		.call = marker_no_probe,					\
	}

#define __MARKER_SITE(load, passed, taken)					\
	".pushsection __markers, 1, \"aw\", @progbits\n"			\
	_ASM_ALIGN "\n"								\
	_ASM_PTR " %c[lab_mark], " load ", " passed ", " taken "\n"		\
	".popsection\n"

/*
 * The statement is executed while something is connected. What is declared here
 * has names that the statement, which is the caller's, will not have.
 */
#define __MARK_OPTIMIZED(mark_name, mark_format, statement)			\
	do {									\
		__label__ __lab_taken, __lab_done;				\
		__MARKER(mark_name, mark_format);				\
		asm goto("771:	movb $0, %%al\n"				\
			 "	testb %%al, %%al\n"				\
			 "	jne %l[__lab_taken]\n"				\
			 "772:\n"						\
			 __MARKER_SITE("771b", "772b", "%l[__lab_taken]")	\
			 : : [lab_mark] "i" (&__lab_mark) : "ax", "cc" : __lab_taken); \
		goto __lab_done;						\
	__lab_taken: __cold;							\
		statement;							\
	__lab_done:;								\
	} while (0)

#define __MARK_GENERIC(mark_name, mark_format, statement)			\
	do {									\
		__MARKER(mark_name, mark_format);				\
		asm(__MARKER_SITE("0", "0", "0") : : [lab_mark] "i" (&__lab_mark)); \
		if (unlikely(READ_ONCE(__lab_mark.armed)))			\
			statement;						\
	} while (0)

#define MARK(name, format, args...)						\
	__MARK_OPTIMIZED(name, format, MARKER_CALL(__lab_mark, format, ##args))
#define MARK_GENERIC(name, format, args...)					\
	__MARK_GENERIC(name, format, MARKER_CALL(__lab_mark, format, ##args))

#endif
