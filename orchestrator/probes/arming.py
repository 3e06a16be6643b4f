# SPDX-License-Identifier: GPL-2.0-only
"""Puts a probe into a guest by what its kind is armed with, and takes it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import ProbeKind
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.bpf_attachment import bpf_attached
from orchestrator.probes.bpftrace import one_liner_attached
from orchestrator.probes.event_attachment import event_attached
from orchestrator.probes.module_attachment import module_attached
from orchestrator.probes.own_programs import own_attached
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.user_event_attachment import user_event_attached
from orchestrator.probes.user_point import UserPoint


@contextmanager
def attached(
    guest: Guest,
    kind: ProbeKind,
    means: Module | Path | BpfObject | None,
    point: ProbePoint,
    symbols: Symbols,
    time_left: Callable[[], float],
) -> Iterator[Attachment]:
    """Arm a probe with its ``means``; take it out again at the end.

    That is a module, bpfprobe for a BPF program or a one-liner, an object of a user's own programs, or nothing for an
    event, which the kernel has itself.

    ``point`` is the probed function's entry. For a hook and a tracepoint the place is found when it is armed. Raises
    EvidenceError when the kernel refuses it (with its own reason), or when the original bytes are not back at the end.
    ``time_left`` is the seconds of the host's time for whatever the guest does by itself meanwhile.
    """
    armed: AbstractContextManager[Attachment]
    if isinstance(means, Module):
        armed = module_attached(guest, kind, means, point, symbols, time_limit=time_left())
    elif isinstance(means, BpfObject):
        armed = own_attached(guest, kind, means, point, symbols)
    elif means is not None and kind.one_liner is not None:
        armed = one_liner_attached(guest, kind, means, point, symbols, time_left)
    elif means is not None:
        armed = bpf_attached(guest, kind, means, point, symbols)
    elif isinstance(point, UserPoint):
        armed = user_event_attached(guest, kind, point)
    else:
        armed = event_attached(guest, kind, point, symbols)
    with armed as attachment:
        yield attachment
