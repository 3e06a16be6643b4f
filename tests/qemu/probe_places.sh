# SPDX-License-Identifier: GPL-2.0-only
# Prints for each address of /tmp/places what the kernel makes of a kprobe there: address, errno, step, whether it is listed
# there (one at an endbr is put behind it), and its flags.
place=/sys/module/probe_places/parameters/place
while read -r address; do
	echo "$address" >$place
	flags=$(sed -n "s/^0*$address [^[]*/listed /p" /sys/kernel/debug/kprobes/list)
	echo "$address $(cat $place) $flags"
done </tmp/places
