#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In place of the agent: prints without end.
while :; do
	echo "and on it goes, line after line, with nothing to say and nobody to hear it"
done >/dev/console
