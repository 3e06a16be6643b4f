# SPDX-License-Identifier: GPL-2.0-only
"""What records of whole systems have as parameters, besides those that other layers read."""

from __future__ import annotations

from orchestrator.results.parameters import CountParameter, NumberParameter

MEMORY_MIB = CountParameter("memory_mib")
AGAIN = CountParameter("again")
"""The number of an A/A boot."""
AGAIN_DIFFERENCE = NumberParameter("again_difference")
"""The A/A boots' difference, in the cell's unit."""
COLD, USER, SYSTEM = NumberParameter("cold"), NumberParameter("user"), NumberParameter("system")
TICKS_PER_SECOND = NumberParameter("ticks_per_second")
RING_SLOTS, EVENTS_A_RUN = NumberParameter("ring_slots"), NumberParameter("events_a_run")
INSTRUMENTATION = NumberParameter("instrumentation")
"""Instructions that the instrumentation itself executed in a run: the median, the least and the most."""
INSTRUMENTATION_LEAST = NumberParameter("instrumentation_least")
INSTRUMENTATION_MOST = NumberParameter("instrumentation_most")
RTT_MIN, RTT_AVG, RTT_MAX = (NumberParameter(f"rtt_{which}_ns") for which in ("min", "avg", "max"))
