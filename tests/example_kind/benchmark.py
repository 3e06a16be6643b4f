# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark's name and its baseline, for planning and reports alike: this file imports nothing."""

from __future__ import annotations

BENCHMARK = "reading"
EMPTY = "/dev/null"
"""The file that all others are compared with: it costs the program that reads, and nothing to read."""
