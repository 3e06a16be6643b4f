# SPDX-License-Identifier: GPL-2.0-only
# Defines $probes events of kprobes through tracefs, enables half of them and takes all away again, as a user does from a
# shell, and says what each step came to. The first address is that of the system call sync.
. /sealed/settings
. /sealed/steps.sh
driver=lab_kpcache_driver
tracing=/sys/kernel/tracing

# Has a step's action done for events $1 to $2, which counts in $counted what came of it.
timed() {
	now
	start=$time
	counted=0
	at=$1
	while [ "$at" -lt "$2" ]; do
		$3 && counted=$((counted + 1))
		at=$((at + 1))
	done
	now
	echo "$3 $(($2 - $1)): taken=$((time - start)) counted=$counted"
}

# Does that for all of $2 events, in ten steps.
all() {
	step=$(($2 / 10))
	done=0
	while [ $done -lt "$2" ]; do
		timed $done $((done + step)) "$1"
		done=$((done + step))
		said "$1: $done of $2 events"
	done
}

shell() { echo 1 > /tmp/nothing; }
# The next address that takes one: what the tracer must not see is refused here, too.
define() {
	while read -r address <&3; do
		if echo "p:lab/p$at 0x$address" 2> /dev/null >> $tracing/kprobe_events; then
			return 0
		fi
	done
	return 1
}
enable() { [ -d $tracing/events/lab/p$at ] && echo 1 > $tracing/events/lab/p$at/enable; }
disable() { [ -d $tracing/events/lab/p$at ] && echo 0 > $tracing/events/lab/p$at/enable; }

hits() {
	read -r _ count _ <<-END
		$(grep ' p0 ' $tracing/kprobe_profile)
	END
}

[ ! -e /proc/sys/debug/kprobes-optimization ] || echo 0 > /proc/sys/debug/kprobes-optimization
[ ! -e /sys/kernel/rcu_expedited ] || echo 1 > /sys/kernel/rcu_expedited
loaded $driver || exit 1
cat /sealed/sites > /sys/kernel/debug/$driver/sites || exit 1
exec 3< /sealed/addresses

tell look 0
timed 0 200 shell
timed 0 200 shell
all define "$probes"
all enable $((probes / 2))
tell look 0
hits
before=$count
calls=0
while [ $calls -lt 100 ]; do
	sync
	calls=$((calls + 1))
done
hits
echo "check: enabled=$(grep -v -c -F '[DISABLED]' /sys/kernel/debug/kprobes/list) calls=$calls hits=$((count - before))"
all disable $((probes / 2))
now
start=$time
echo > $tracing/kprobe_events
now
echo "remove: taken=$((time - start)) left=$(grep -c . /sys/kernel/debug/kprobes/list)"
tell look 0
rmmod $driver
