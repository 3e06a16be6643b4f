# SPDX-License-Identifier: GPL-2.0-only
"""Probes in a guest: their places, how they are armed, and the evidence for them."""
