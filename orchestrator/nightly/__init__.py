# SPDX-License-Identifier: GPL-2.0-only
"""Nightly runs: their comparison with the last good one, and their reports."""
