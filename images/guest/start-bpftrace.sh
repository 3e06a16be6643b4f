#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Starts a one-liner in a session of its own and prints the process's PID: start-bpftrace TEXT OUTPUT BLOCKS. OUTPUT gets
# what it prints, at most so many blocks of 512 bytes. Maps have as many keys as by bpftrace's own default, in the
# variables of its versions before and after 0.20.
ulimit -f "$3"
export BPFTRACE_MAP_KEYS_MAX=4096 BPFTRACE_MAX_MAP_KEYS=4096
setsid bpftrace -e "$1" >"$2" 2>&1 </dev/null & echo $!
