# SPDX-License-Identifier: GPL-2.0-only
"""What records of many probes have as parameters, besides those of all kinds."""

from __future__ import annotations

from orchestrator.results.parameters import CountParameter

PROBES = CountParameter("probes")
STEP = CountParameter("step")
"""Probes in each sample of a row that is measured in steps."""
HASH_BITS = CountParameter("hash_bits")
KPROBE_CACHE = "kprobe_cache"
LEFT_OUT = CountParameter("left_out")
CACHE_BYTES, PROBE_BYTES_TAKEN = CountParameter("cache_bytes"), CountParameter("probe_bytes_taken")
