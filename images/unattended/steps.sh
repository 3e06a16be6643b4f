# SPDX-License-Identifier: GPL-2.0-only
# For the scripts beside: one step of a module after the other, each with what it came to.

# Says on the console how far the work has got. Written there at once, it takes nothing from the step that follows.
said() {
	echo "<4>lab: $*" > /dev/kmsg
}

# Nanoseconds, told by the kernel: on the exact clock these are instructions.
now() {
	read -r _ _ time _ <<-END
		$(grep -m 1 '^now at' /proc/timer_list)
	END
}

# Loads a module, and keeps where it is: nothing tells that any more when it has gone.
loaded() {
	insmod /sealed/$1.ko || return 1
	located "$1"
}

located() {
	cat /proc/modules > /sealed/modules
	(cd "/sys/module/$1/sections" && grep -H 0x .[a-z_]*) > /sealed/sections
}

# Has the module do one thing: its command, and its one line of what that came to.
tell() {
	if ! echo "$*" > "/sys/module/$driver/parameters/do"; then
		echo "failed: $* ($(cat "/sys/module/$driver/parameters/result"))"
		exit 1
	fi
	echo "$*: $(cat "/sys/module/$driver/parameters/result")"
}

# Does something to so many probes, in ten steps.
in_steps() {
	step=$(($2 / 10))
	done=0
	while [ $done -lt "$2" ]; do
		tell "$1" $step
		done=$((done + step))
		said "$1: $done of $2 kprobes"
	done
}
