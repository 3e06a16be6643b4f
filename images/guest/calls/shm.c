// SPDX-License-Identifier: GPL-2.0-only
// Makes shared memory of System V, attaches it, and removes it.
#include "workload.h"
#include <linux/ipc.h>

enum { PAGE = 4096 };

void workload(void)
{
	long id = sys3(SYS_shmget, IPC_PRIVATE, PAGE, 0600);
	long address = sys3(SYS_shmat, id, 0, 0);

	sys3(SYS_shmctl, id, IPC_RMID, 0);
	sys1(SYS_shmdt, address);
}
