# SPDX-License-Identifier: GPL-2.0-only
# Sends itself $packets echo requests in each run, the next one as soon as one is answered.
. /sealed/settings
. /sealed/steps.sh
. /sealed/system.sh
. /sealed/runs.sh

before() { :; }

timed() {
	measured $system ping -q -f -c "$packets" 127.0.0.1
}

after() {
	grep -E ' packets transmitted, |^rtt ' $output
}

enter_system
ip link set lo up || give_up "cannot set up the loopback device"
set_date
runs
