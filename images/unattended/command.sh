# SPDX-License-Identifier: GPL-2.0-only
# Runs the command in /sealed/argv, and tells what it printed by size and digest.
. /sealed/settings
. /sealed/steps.sh
. /sealed/system.sh
. /sealed/runs.sh

before() { :; }

timed() {
	measured -a /sealed/argv $system
}

after() {
	echo "printed bytes=$(wc -c < $output) digest=$(sha256sum < $output | cut -d ' ' -f 1)"
}

enter_system
set_date
runs
