// SPDX-License-Identifier: GPL-2.0-only
// See bpf_abi.h.
#include "bpf_abi.h"

long bpf(int command, union bpf_request *request, size_t size)
{
	static const uint64_t unlimited[2] = {-1, -1};
	long result = sys3(SYS_bpf, command, request, size);

	// Maps and programs count as locked memory before Linux commit 3ac1f01b43b6 (in 5.11).
	if (result == -E_PERM && sys4(SYS_prlimit64, 0, RLIMIT_MEMLOCK, unlimited, NULL) == 0)
		result = sys3(SYS_bpf, command, request, size);
	return result;
}

int program_by_id(uint32_t id)
{
	union bpf_request request = {.number = {.id = id}};

	return (int)bpf(BPF_PROG_GET_FD_BY_ID, &request, sizeof(request.number));
}
