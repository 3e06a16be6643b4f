#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# An init that ends.
exit 7
