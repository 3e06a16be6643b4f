#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Enables all events of the kernel in two instances of tracefs: enable-events TRACEFS. A tracepoint with two functions
# calls its __traceiter_NAME at each hit, and so can be counted. Not those of system calls, whose names tell who makes
# them and which make every call another, nor what a kernel's own benchmark fires all the time.
for instance in "$1/instances/lab-first" "$1/instances/lab-second"; do
	mkdir "$instance" || exit
	echo 64 >"$instance/buffer_size_kb"
	for events in "$instance"/events/*/; do
		case $events in
		*/ftrace/ | */syscalls/ | */raw_syscalls/ | */benchmark/) ;;
		*) echo 1 2>/dev/null >"$events/enable" ;;
		esac
	done
done
grep -q . "$instance/set_event"
