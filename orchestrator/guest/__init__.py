# SPDX-License-Identifier: GPL-2.0-only
"""Guests: QEMU processes, the accelerator they run on, and the ways into them. Knows nothing of probes."""
