# SPDX-License-Identifier: GPL-2.0-only
"""Puts a probe into a guest by what its kind is armed with, and takes it out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import ProbeKind
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.module_attachment import module_attached
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

Means = Module
"""What a probe is armed with."""


@contextmanager
def attached(
    guest: Guest, kind: ProbeKind, means: Means, point: ProbePoint, symbols: Symbols | None = None
) -> Iterator[Attachment]:
    """Arm a probe; take it out again at the end.

    ``point`` is the probed function's entry. For a hook and a tracepoint the place is found when it is armed.
    ``symbols`` are the guest's; None reads them when they are needed. Raises EvidenceError when the kernel refuses it
    (with its own reason), or when the original bytes are not back at the end.
    """
    with module_attached(guest, kind, means, point, symbols) as attachment:
        yield attachment
