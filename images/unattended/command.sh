# SPDX-License-Identifier: GPL-2.0-only
# Runs the command in /unattended/argv, and tells what it printed by size and digest.
. /unattended/settings
. /unattended/steps.sh
. /unattended/system.sh
. /unattended/runs.sh

before() { :; }

timed() {
	measured -a /unattended/argv $system
}

after() {
	echo "printed bytes=$(wc -c < $output) digest=$(sha256sum < $output | cut -d ' ' -f 1)"
}

enter_system
set_date
runs
