# SPDX-License-Identifier: GPL-2.0-only
# Cuts a command's output into numbered files that the host takes one by one: arguments FOLDER STREAM.
# When it takes none for a while, the command waits at its pipe, so a flood fills nothing.
number=0
while dd of="$1/$2.part" bs=65536 count=1 2>/dev/null && [ -s "$1/$2.part" ]; do
	mv "$1/$2.part" "$1/$2.$number"
	number=$((number + 1))
	while [ -e "$1/$2.$((number - 4))" ]; do
		sleep 0.1 || sleep 1
	done
done
