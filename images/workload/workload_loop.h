// SPDX-License-Identifier: GPL-2.0-only
// The loop around a user's function, in assembly: a batch of n calls is exactly n times one round and a constant.
#ifndef WORKLOAD_LOOP_H
#define WORKLOAD_LOOP_H

long call_again_and_again(long calls);

#endif
