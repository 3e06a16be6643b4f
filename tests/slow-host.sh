#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command as on a host that is five to eight times slower, and ends with its status:
#
#   tests/slow-host.sh load  COMMAND...     beside four busy processes for each processor
#   tests/slow-host.sh quota COMMAND...     with an eighth of one processor, for it and all that it starts (as root)
set -eu

[ $# -ge 2 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
how=$1
shift

busy=
group=
finish() {
    # shellcheck disable=SC2086  # numbers
    [ -z "$busy" ] || kill -KILL $busy 2>/dev/null || : "one has been killed already"
    [ -z "$group" ] || rmdir "$group" 2>/dev/null || echo "$group has processes left" >&2
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

case $how in
load)
    for _ in $(seq $((4 * $(nproc)))); do
        # Ends with us, and does not begin where we have ended before it asks for that.
        # shellcheck disable=SC2016  # the inner shell's own
        setpriv --pdeathsig KILL sh -c '[ "$PPID" = "$0" ] || exit 1; while :; do :; done' $$ &
        busy="$busy $!"
    done
    "$@"
    ;;
quota)
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        folder=/sys/fs/cgroup/slow-host-$$
        mkdir "$folder"
        group=$folder
        echo "12500 100000" >"$group/cpu.max" # microseconds, and of how many
    else
        folder=/sys/fs/cgroup/cpu/slow-host-$$
        mkdir "$folder"
        group=$folder
        echo 100000 >"$group/cpu.cfs_period_us"
        echo 12500 >"$group/cpu.cfs_quota_us"
    fi
    # shellcheck disable=SC2016  # the inner shell's own
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@"
    ;;
*)
    echo "found $how; allowed: load, quota" >&2
    exit 2
    ;;
esac
