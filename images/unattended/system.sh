# SPDX-License-Identifier: GPL-2.0-only
# For the scripts beside: a system in memory, and programs that run in it. A disk would answer at a moment of the host's.
system=/system
output=/sealed/said
complaints=/sealed/complained

give_up() {
	echo "$*"
	exit 1
}

# The image's root, read-only, with what a system has besides.
enter_system() {
	while read -r driver; do
		insmod "/sealed/$driver" || give_up "cannot load $driver"
	done < /sealed/drivers
	mkdir -p $system
	mount -t squashfs -o ro,loop /sealed/root.squashfs $system || give_up "cannot mount the image"
	mkdir -p -m 1777 /dev/shm
	for place in dev proc sys; do
		mount -o bind /$place $system/$place || give_up "cannot mount /$place"
	done
	for place in mnt run tmp; do
		mount -t tmpfs none $system/$place || give_up "cannot mount /$place"
	done
}

set_date() {
	date -s "@$date" > /dev/null || give_up "cannot set the date"
}

# Has a program run in the system: a line of what it cost, or the end of all, with its last words.
measured() {
	macrobench -o $output -e $complaints "$@" && return
	tail -n 4 $output
	tail -n 8 $complaints
	exit 1
}
