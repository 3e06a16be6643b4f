// SPDX-License-Identifier: GPL-2.0-only
// Submits writes of four blocks in a row at once: the kernel makes one request of them.
#include "memory_disk.h"
#include "workload.h"
#include <linux/aio_abi.h>

enum { WRITES = 4 };

static char bytes[WRITES * BLOCK] __attribute__((aligned(BLOCK)));
static struct iocb writes[WRITES], *submitted[WRITES];
static struct io_event events[WRITES];
static unsigned long ring;

void workload_setup(void)
{
	long fd = sys2(SYS_open, EMPTY_DISK, O_WRONLY | OPEN_DIRECT);

	sys2(SYS_io_setup, WRITES, &ring);
	for (int i = 0; i < WRITES; i++) {
		writes[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		writes[i].aio_fildes = (uint32_t)fd;
		writes[i].aio_buf = (uint64_t)(unsigned long)(bytes + i * BLOCK);
		writes[i].aio_nbytes = BLOCK;
		writes[i].aio_offset = i * BLOCK;
		submitted[i] = &writes[i];
	}
}

void workload(void)
{
	sys3(SYS_io_submit, ring, WRITES, submitted);
	sys5(SYS_io_getevents, ring, WRITES, WRITES, events, 0);
}
