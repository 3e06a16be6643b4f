#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Gives the guest's console to a person: console-shell TOKEN NAME. TOKEN is printed when it is about to; NAME stands in
# the prompt. TERM, ROWS and COLS tell of the person's terminal. Ends with the shell.
console=/dev/ttyS0
stty -F "$console" sane rows "$ROWS" cols "$COLS"
export HOME=/root PS1="$2:\\w # "
# Nobody listens to what these ask the first program for, and without ACPI nothing powers off: QEMU ends at a reset.
export ENV=/etc/console-profile
echo "alias halt='reboot -f' poweroff='reboot -f' reboot='reboot -f'; PS1='$PS1'" >"$ENV"
cd / || exit 1
printf '%s\n' "$1" >"$console"
# Not the last command, so it is a child of this shell and leads no process group: setsid need not fork to be waited for.
# By its path it is the image's own shell where there is an image: busybox's would take its own dpkg for Debian's.
if [ -x /bin/bash ]; then
    busybox setsid -c /bin/bash --rcfile "$ENV" -i <"$console" >"$console" 2>&1
else
    busybox setsid -c /bin/sh -i <"$console" >"$console" 2>&1
fi
exit $?
