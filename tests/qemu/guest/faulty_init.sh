#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# An init that goes wrong in the kernel before there is an agent.
insmod /faulty.ko "fault=$(cat /fault)"
exec sleep 1000
