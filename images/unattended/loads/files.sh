#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Processes and files: what they pass is spread over the kernel.
for number in 1 2 3 4 5; do
	cp /sealed/settings /tmp/copy$number
	cat /tmp/copy$number /proc/stat > /dev/null
	ls /bin > /tmp/list
	rm /tmp/copy$number /tmp/list
done
