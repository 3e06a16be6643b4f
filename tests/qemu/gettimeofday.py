# SPDX-License-Identifier: GPL-2.0-only
"""The gettimeofday calls that gtodbench's cells make, for tests that make them themselves."""

from __future__ import annotations

from orchestrator.arch import Arch
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.call_programs import Calls, system_call
from orchestrator.catalog.system_calls import system_calls


def gettimeofday(arch: Arch, entry: str = "auto", calls: int = 1000) -> Calls:
    """Calls into a kernel by one of its entries."""
    number = system_calls()["gettimeofday"].number(arch, entry)
    assert number is not None
    word_size = 8 if arch == "x86_64" else 4
    arguments = benchmarks()["gtodbench"].arguments
    return system_call(number, arguments, entry=entry, word_size=word_size, calls=calls)
