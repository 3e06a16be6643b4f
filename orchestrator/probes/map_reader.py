# SPDX-License-Identifier: GPL-2.0-only
"""The reader of what BPF programs of an object send to user space, in place of their tool's.

A process in the guest opens the perf events without which ``bpf_perf_event_output()`` fails, and holds them as long as
the programs are attached. It is ``images/bpf/map_reader.c``, and sleeps while calls are timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import TOOL
from orchestrator.probes.map_use import MapUse, map_uses

_PIPES = "/tmp/map-reader"  # noqa: S108 - in the guest
LOADERS_WORDS = ("read", TOOL, _PIPES)
"""Arguments of bpfload.c, which starts the reader before it attaches anything."""


class MapReader:
    """The reader of ``count`` ring buffers and perf event arrays, a process in the guest; without any there is none.

    ``events`` are those of the arrays. Each record that it gets wakes it, by an interrupt of the CPU to itself.
    """

    is_filled = False

    def __init__(self, guest: Guest, count: int, events: int = 0, process: int = 0) -> None:
        self._guest, self.count, self.events, self.process = guest, count, events, process

    def begin(self) -> None:
        """Make room in perf event arrays that are short of it, and note what is in them."""
        self._tell("t")

    def fill(self) -> None:
        """Leave all of them without room for one more record, for good."""
        self._tell("f")
        self.is_filled = True

    def uses(self) -> Sequence[MapUse]:
        """What has come into perf event arrays since; behind ``fill``, into ring buffers, too.

        Raises EvidenceError for an unreadable answer.
        """
        return map_uses(self._tell("s")) if self.count else ()

    def check_full(self) -> None:
        """Raise EvidenceError if anything has come in since ``fill``."""
        for use in self.uses():
            if use.new:
                raise EvidenceError(f"map {use.name} was left without room, and {use.new} bytes came in")

    def end(self) -> None:
        self._tell("e")

    def _tell(self, letter: str) -> str:
        if not self.count:
            return ""
        return self._guest.succeed(
            ["sh", "-c", f"kill -CONT {self.process}; echo {letter} >{_PIPES}/go; cat {_PIPES}/said"]
        ).text
