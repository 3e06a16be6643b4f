# SPDX-License-Identifier: GPL-2.0-only
"""Somebody else's use of the function tracer in a guest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.guest.guest import Guest

_TRACING = "/sys/kernel/tracing"


@contextmanager
def traced_function(guest: Guest, function: str) -> Iterator[None]:
    """A function that the kernel's own function tracer traces."""
    guest.put(function.encode(), f"{_TRACING}/set_ftrace_filter")
    guest.put(b"function", f"{_TRACING}/current_tracer")
    try:
        yield
    finally:
        guest.put(b"nop", f"{_TRACING}/current_tracer")
        guest.put(b"", f"{_TRACING}/set_ftrace_filter")
