# SPDX-License-Identifier: GPL-2.0-only
"""QEMU guests: the machine, its life, its channels. Knows nothing of probes."""
