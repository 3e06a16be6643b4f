# SPDX-License-Identifier: GPL-2.0-only
# Configures the smallest kernel and makes all that its build needs first, as /sealed/build.tar.
. /sealed/settings
. /sealed/steps.sh
. /sealed/system.sh
. /sealed/kernel_make.sh

enter_system
enter_source
set_date
kernel_make tinyconfig
said "configured"
kernel_make prepare
said "prepared"
kernel_make scripts
# All of one time, so that nothing in it is older than what it was made from, and the archive is the same each time.
macrobench -o /sealed/build.tar -e $complaints $system tar -C /mnt/build --sort=name --mtime="@$tree_date" \
	--owner=0 --group=0 --numeric-owner --format=gnu -cf - . || give_up "$(tail -n 8 $complaints)"
