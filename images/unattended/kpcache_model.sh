# SPDX-License-Identifier: GPL-2.0-only
# Looks up $probes addresses in the model of the kprobes' hash, with and without the cache, and says what it came to.
. /sealed/settings
. /sealed/steps.sh
driver=lab_kpcache_model

loaded $driver || exit 1
cat /sealed/sites > /sys/kernel/debug/$driver/sites || exit 1
for bits in 6 12; do
	for hot in 0 95; do
		tell fill "$probes" $bits
		tell access $hot "$seed"
		tell walk nothing
		tell walk nothing
		# The cache is filled by a first walk, and counted in a last.
		tell walk list
		tell walk list
		tell walk cache
		tell walk cache
		tell walk cache
		tell walk count
		said "looked up among $probes addresses in 2^$bits lists"
	done
done
tell remove 100
rmmod $driver
