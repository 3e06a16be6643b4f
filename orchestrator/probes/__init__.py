# SPDX-License-Identifier: GPL-2.0-only
"""Probes in a guest: where they go, how they get there, and what proves them."""
