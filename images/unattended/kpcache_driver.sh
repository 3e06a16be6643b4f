# SPDX-License-Identifier: GPL-2.0-only
# Registers, enables, hits, disables and unregisters $probes kprobes, and says what each step came to.
. /sealed/settings
. /sealed/steps.sh
driver=lab_kpcache_driver

# An optimised hit does no lookup.
[ ! -e /proc/sys/debug/kprobes-optimization ] || echo 0 > /proc/sys/debug/kprobes-optimization
# Without, unregistering waits for one grace period after the other; a kernel for one CPU has none to wait for.
[ ! -e /sys/kernel/rcu_expedited ] || echo 1 > /sys/kernel/rcu_expedited
loaded $driver || exit 1
cat /sealed/sites > /sys/kernel/debug/$driver/sites || exit 1

tell total "$probes"
tell call 1
tell call 10

tell alone 1
tell call 1
tell call 10
tell call 10
tell alone 0

in_steps register "$probes"
tell call 10
tell sieve "$rehearse"
in_steps enable $((probes / 2))
tell targets 1
tell check
tell call 1
tell call 10
tell call 10
tell targets 0
in_steps disable $((probes / 2))
in_steps unregister "$probes"
tell restored
rmmod $driver
