# SPDX-License-Identifier: GPL-2.0-only
"""What records of attaching have as parameters."""

from __future__ import annotations

from orchestrator.results.parameters import CountParameter, NumberParameter, TextParameter

FUNCTIONS, FAULT = TextParameter("functions"), TextParameter("fault")
"""How many functions the table asks for, or ``all``; and what goes wrong, if anything."""
ATTACHED_FUNCTIONS, DETACH = CountParameter("attached_functions"), CountParameter("detach_instructions")
ATTACH_NS, DETACH_NS = CountParameter("attach_ns"), CountParameter("detach_ns")
"""By the guest's clock, which goes on while the kernel waits."""
KEPT_BYTES, LEFT_BYTES, TEXT_BYTES = (
    NumberParameter("kept_bytes"),
    NumberParameter("left_bytes"),
    CountParameter("text_bytes"),
)
"""Memory that the kernel holds while all is attached, and still after detaching; bytes of text that differ."""
IPI_ROUNDS, DETACH_IPI_ROUNDS = CountParameter("ipi_rounds"), CountParameter("detach_ipi_rounds")
"""Calls of functions that make all CPUs do something."""
GRACE_PERIODS, DETACH_GRACE_PERIODS = CountParameter("grace_periods"), CountParameter("detach_grace_periods")
HIT, HITS_PER_CALL = NumberParameter("hit_instructions"), CountParameter("hits_per_call")
"""Instructions of a hit while all is attached, and hits per call."""
GROWS = TextParameter("grows")
"""The symbols with most of what attaching costs more than with the next smaller count, and their shares."""
