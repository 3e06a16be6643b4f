# SPDX-License-Identifier: GPL-2.0-only
"""QEMU guests: the machine, its lifecycle, its channels. Knows nothing of probes."""
