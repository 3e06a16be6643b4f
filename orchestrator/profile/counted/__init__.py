# SPDX-License-Identifier: GPL-2.0-only
"""From the counts of QEMU's plugin to a proved profile."""
