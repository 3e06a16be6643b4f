#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes exactly $1 calls on each of two CPUs at once, by processes whose name begins with "exact".
taskset 1 /tmp/exact -c "$1" &
first=$!
taskset 2 /tmp/exact -c "$1" || exit 1
wait $first
