#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A test of two, in TAP, of which one fails.
echo TAP version 13
echo 1..2
echo "# a diagnostic"
echo ok 1 first
echo not ok 2 second
exit 1
