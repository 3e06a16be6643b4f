#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Starts a one-liner in a session of its own and prints the process's PID: start-bpftrace TEXT OUTPUT BLOCKS. OUTPUT gets
# what it prints, at most so many blocks of 512 bytes. Maps have as many keys as by bpftrace's own default, in the
# variables of its versions before and after 0.20.
#
# bpftrace is stopped while calls are timed, so its buffers keep what all of them print: a quarter of the free memory, or
# bpftrace's own 64 pages for each CPU. join() takes 16 KB a hit.
ulimit -f "$3"
export BPFTRACE_MAP_KEYS_MAX=4096 BPFTRACE_MAX_MAP_KEYS=4096
free=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
pages=64
while [ $((pages * 2 * 4 * 4 * $(nproc))) -le "${free:-0}" ]; do pages=$((pages * 2)); done
export BPFTRACE_PERF_RB_PAGES=$pages
setsid bpftrace -e "$1" >"$2" 2>&1 </dev/null & echo $!
