# SPDX-License-Identifier: GPL-2.0-only
# For the scripts beside: runs of one program, one cold, whose files are not in the page cache yet, and $warm warm ones.
#
# A script defines before, timed and after: what comes before each run, the run itself, and what is told of it.

# Before the kernel has settled on its clock its timers are coarse, and the answers to a flood of pings come too late.
settle() {
	tries=0
	while [ "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)" != tsc ]; do
		[ $tries -lt 200 ] || give_up "the kernel does not take the TSC for its clock"
		sleep 0.1
		tries=$((tries + 1))
	done
}

one_run() {
	before
	if [ "$1" = cold ]; then
		sync
		echo 3 > /proc/sys/vm/drop_caches
	fi
	echo "$*"
	[ -z "$report" ] || cat "$report" > "/sealed/report_before_${2:-cold}"
	timed
	[ -z "$report" ] || cat "$report" > "/sealed/report_behind_${2:-cold}"
	after
	said "done: $*"
}

# A module says in the kernel's log why it will not be loaded.
refused() {
	dmesg | tail -n 4
	give_up "cannot load the module"
}

# All runs, with the module loaded if there is one: with what it has to report, and what is left of that once it stops.
runs() {
	# Other random numbers, and another moment between two timer ticks, are another boot of the same thing.
	settle
	seedrandom /sealed/seed || exit 1
	sleep "0.$(printf %06d "$phase")"
	if [ -n "$optimisation" ] && [ -e /proc/sys/debug/kprobes-optimization ]; then
		echo "$optimisation" > /proc/sys/debug/kprobes-optimization
	fi
	if [ -e /sealed/module.ko ]; then
		insmod /sealed/module.ko || refused
		located "$module"
	fi
	one_run cold
	number=1
	while [ $number -le "$warm" ]; do
		one_run warm $number
		number=$((number + 1))
	done
	if [ -n "$report" ]; then
		cat "$report" > /sealed/report || give_up "the module does not report"
	fi
	if [ -n "$stop" ]; then
		echo 1 > "$stop" || give_up "the module does not stop"
		cat "$report" > /sealed/report_after || give_up "the module does not report any more"
	fi
	if [ -e /sealed/module.ko ]; then
		rmmod "$module" || give_up "cannot unload the module"
	fi
}
