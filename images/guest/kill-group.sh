# SPDX-License-Identifier: GPL-2.0-only
# Kills a process group and waits a little until nothing is left of it: argument NUMBER.
exec 2>/dev/null
kill -KILL "-$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do
	kill -0 "-$1" || break
	sleep 0.1 || sleep 1
done
