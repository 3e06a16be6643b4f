# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks: how each is run in a guest, and what its output means."""
