# SPDX-License-Identifier: GPL-2.0-only
"""Profiles: where the instructions of a call go.

QEMU's plugin counts instructions (``counted``). Their proved sums are stored (``stored``), read as code (``code``), by
source line (``lines``), and printed (``printed``).
"""
