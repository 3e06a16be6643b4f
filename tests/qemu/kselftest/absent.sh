#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A test that cannot run here.
exit 4
