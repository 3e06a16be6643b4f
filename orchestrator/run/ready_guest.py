# SPDX-License-Identifier: GPL-2.0-only
"""A guest made ready to measure in: the CPU it claims, on its final clocksource, with the modules asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.guest_checks import check_cpus, wait_for_clocksource
from orchestrator.run.loaded_modules import load_kernel_modules
from orchestrator.run.started_guest import started, unwatched


@dataclass(frozen=True)
class ReadyGuest:
    """A running guest and what was read from it once, for all its cells."""

    guest: Guest
    artifacts: BootArtifacts
    symbols: Symbols


@contextmanager
def ready_guest(
    context: BuildContext,
    artifacts: BootArtifacts,
    directory: Path,
    name: str,
    *,
    fresh: bool = False,
    watch: Callable[[Guest], None] = unwatched,
) -> Iterator[ReadyGuest]:
    """Start a guest to measure in, as ``started`` does, and load its kernel's own modules; it is killed at the end.

    Raises GuestError, or EvidenceError for a wrong guest.
    """
    with started(context, artifacts.machine, directory, name, fresh=fresh, watch=watch) as guest:
        if guest.restored_from is None:  # a restored one was checked
            check_cpus(guest)
            wait_for_clocksource(guest)
        load_kernel_modules(guest, artifacts.kernel_modules)
        yield ReadyGuest(guest, artifacts, Symbols.of(guest, artifacts.kernel_modules))
