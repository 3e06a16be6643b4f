// SPDX-License-Identifier: GPL-2.0-only
// Submits an operation that does nothing to an io_uring, and takes its completion.
#include "workload.h"
#include <linux/io_uring.h>

enum { RING_BYTES = 4096 };

static long fd;
static char *ring;
static struct io_uring_params parameters;

void workload_setup(void)
{
	struct io_uring_sqe *entries;

	fd = sys2(SYS_io_uring_setup, 1, &parameters);
	ring = map_memory((int)fd, RING_BYTES, IORING_OFF_SQ_RING, PROT_READ | PROT_WRITE, MAP_SHARED);
	entries = map_memory((int)fd, RING_BYTES, IORING_OFF_SQES, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (is_error(ring) || is_error(entries))
		exit_program(1);
	entries[0].opcode = IORING_OP_NOP;
}

void workload(void)
{
	++*(volatile uint32_t *)(ring + parameters.sq_off.tail);
	sys6(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
	++*(volatile uint32_t *)(ring + parameters.cq_off.head);
}
