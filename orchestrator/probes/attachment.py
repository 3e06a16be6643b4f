# SPDX-License-Identifier: GPL-2.0-only
"""A probe that is armed in a guest, whatever arms it: what it is seen as, does at a hit, and has counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from orchestrator.catalog.probes import Extra, Handler
from orchestrator.probes.called import Called
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols


class Attachment(ABC):
    """An armed probe. ``point`` is where its evidence is. Made by ``attached`` of ``arming.py``."""

    point: ProbePoint

    @abstractmethod
    def observe(self) -> Observation:
        """Read all sources of evidence at the probe point."""

    @abstractmethod
    def wait_until_armed(self) -> Observation:
        """Wait until all sources agree on the mechanism. Raises EvidenceError with what they show instead."""

    @abstractmethod
    def handle(self, handler: Handler) -> None:
        """Choose what a hit does. The probe stays armed.

        ``count`` and ``record`` begin with nothing counted or recorded; what they did is final when ``noop`` takes
        their place. Raises UnsupportedError where it cannot record.
        """

    @abstractmethod
    def one_caller(self) -> AbstractContextManager[str | None]:
        """Count apart the hits of the process that writes its number to a file of the guest's, whose path this gives.

        None where the hits of each process are counted apart, or all hits together.
        """

    @abstractmethod
    def counts(self, called: Called) -> tuple[int, int | None]:
        """Hits of the processes that made the calls since ``count`` was chosen, and those of others.

        The others are None where they are not counted apart. Raises EvidenceError where the kernel let any hit pass.
        """

    @abstractmethod
    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        """Events of the calls since ``record`` was chosen, after a check of each, and events of others.

        All of them go to the ``file`` as CSV, if one is given. Raises EvidenceError with what is wrong.
        """

    def renewal(self) -> Callable[[], None] | None:
        """What empties the place that the handler records into, where a hit's cost depends on how full that is."""
        return None

    def extras(self) -> Sequence[Extra]:
        """What a hit passes at present besides the handler, by what the kernel finds at the probe point."""
        return ()

    def take_off(self, extra: Extra) -> None:
        """Rid the probe of something that its hits pass; nothing puts it back.

        Raises EvidenceError when the hits still pass it.
        """
        raise AssertionError(f"nothing here has {extra} to take off")

    def memory(self) -> tuple[int, int] | None:
        """Bytes of a kprobe, and those that the kernel takes besides for an optimised one; None where it is neither."""
        return None

    def places(self) -> Mapping[str, int]:
        """Of a probe that tries many places, what it took of them, named as a record's parameters are."""
        return {}

    def detour(self, seen: Observation) -> str | None:
        """The range of the detour buffer that the jump at the probe point leads into; None without one."""
        return None
