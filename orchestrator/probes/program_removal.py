# SPDX-License-Identifier: GPL-2.0-only
"""Whoever attaches BPF programs at a place, the kernel has none of them at the end, and its bytes are as before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.catalog.probes import ProbeKind
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import bring, check_no_statistics, compile_programs, keep_statistics
from orchestrator.probes.evidence import check_untouched
from orchestrator.probes.optimiser import allow_optimisation, wait_until_untouched
from orchestrator.probes.place import Place
from orchestrator.probes.removal import removed


@contextlib.contextmanager
def programs_removed(guest: Guest, kind: ProbeKind, tool: Path, place: Place) -> Iterator[None]:
    """Let programs be attached at an untouched place, with bpfprobe brought; remove all of them at the end.

    Raises EvidenceError when the original bytes are not there before, or not back at the end.
    """
    point = place.point
    check_untouched(point, place.observe(), "before attaching")
    allow_optimisation(guest, kind)
    bring(guest, tool)
    check_no_statistics(guest)
    compiled_before = compile_programs(guest, on=kind.is_compiled)

    def remove() -> None:
        _remove(guest, kind, place)
        compile_programs(guest, on=compiled_before)

    with removed(remove):
        yield


def _remove(guest: Guest, kind: ProbeKind, place: Place) -> None:
    guest.succeed(["sh", "-c", "rm -rf /sys/fs/bpf/lab-*"])
    keep_statistics(guest, on=False)
    wait_until_untouched(guest, kind, place.point, place.observe, "after detaching the program")
