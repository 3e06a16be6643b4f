// SPDX-License-Identifier: GPL-2.0-only
// See bpf_abi.h.
#include "bpf_abi.h"

long bpf(int command, union bpf_request *request, size_t size)
{
	return sys3(SYS_bpf, command, request, size);
}
