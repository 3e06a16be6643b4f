# SPDX-License-Identifier: GPL-2.0-only
# Attaches to as many functions as $counts say by $mechanism, and detaches, and says what each step came to.
. /sealed/settings
. /sealed/steps.sh

# BPF chooses by random numbers where its code is.
seedrandom /sealed/seed || exit 1
if [ -n "$module" ]; then
	loaded "$module" || exit 1
fi
# shellcheck disable=SC2086 # each number is a word
/sealed/attachmany "$mechanism" "$seed" "$fault" $counts || exit 1
if [ -n "$module" ]; then
	rmmod "$module"
fi
