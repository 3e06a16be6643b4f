# SPDX-License-Identifier: GPL-2.0-only
# Has two loads run beside half of $probes events of kprobes that are enabled through tracefs, and without any event.
# The first address is that of the system call sync.
. /sealed/settings
. /sealed/steps.sh
driver=lab_kpcache_driver
tracing=/sys/kernel/tracing
switch=/proc/sys/kernel/ftrace_enabled

# The next address that takes one: what the tracer must not see is refused.
define() {
	while read -r address <&3; do
		if echo "p:lab$1/p$2 0x$address" 2> /dev/null >> $tracing/kprobe_events; then
			return 0
		fi
	done
	echo "failed: event $2 of group $1"
	exit 1
}

hits() {
	read -r _ count _ <<-END
		$(grep ' p0 ' $tracing/kprobe_profile)
	END
}

# Ten events of each group, one after the other, by what the kernel takes.
enable() {
	for number in "$@"; do
		now
		start=$time
		echo 1 > $tracing/events/lab$number/enable || exit 1
		now
		echo "enable 10: taken=$((time - start))"
	done
}

# A load twice, each time with what it took: many small system calls, or processes and files.
twice() {
	for time in first again; do
		said "load: $1, $2, $time"
		line=$(macrobench -c off / "/sealed/$1.sh") || exit 1
		echo "load $1 $2 $time: ${line#run }"
	done
}

[ ! -e /sys/kernel/rcu_expedited ] || echo 1 > /sys/kernel/rcu_expedited
chmod 755 /sealed/calls.sh /sealed/files.sh
loaded $driver || exit 1
cat /sealed/sites > /sys/kernel/debug/$driver/sites || exit 1
exec 3< /sealed/addresses

tell look 0
# One of two is enabled: a hundred in ten groups, whose cost is told, and the rest as group 10. Group 11 stays off.
number=0
while [ $number -lt "$probes" ]; do
	if [ $((number % 2)) = 1 ]; then
		define 11 $number
	elif [ $number -lt 200 ]; then
		define $((number / 20)) $number
	else
		define 10 $number
	fi
	number=$((number + 1))
	[ $((number % 500)) != 0 ] || said "define: $number of $probes events"
done
enable 0 1 2 3 4
# With the tracer off nothing is patched: all of them take one look at the kernel's functions, instead of one each.
echo 0 > $switch || exit 1
echo 1 > $tracing/events/lab10/enable || exit 1
echo 1 > $switch
said "enable: all but 50 of $((probes / 2)) events"
enable 5 6 7 8 9
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
twice calls with
twice files with
# One after the other: Linux 6.1 leaves marks on functions that are taken off while the tracer is off, and then refuses
# to end (ftrace_shutdown).
for number in 0 1 2 3 4 5 6 7 8 9 10; do
	echo 0 > $tracing/events/lab$number/enable || exit 1
	said "disable: group $number"
done
echo > $tracing/kprobe_events
echo "remove: left=$(grep -c . /sys/kernel/debug/kprobes/list)"
tell look 0
twice calls without
twice files without
rmmod $driver
