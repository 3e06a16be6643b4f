#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Keeps two CPUs busy with the same system call until both processes are killed.
for mask in 1 2; do
	taskset $mask gtodbench -s 1000000 > /dev/null 2>&1 &
done
