# SPDX-License-Identifier: GPL-2.0-only
"""Where a cell's instructions went: from the counts of QEMU's plugin to a proved profile."""
