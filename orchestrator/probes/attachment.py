# SPDX-License-Identifier: GPL-2.0-only
"""An armed probe in a guest, whatever arms it: its calls, its evidence, and its removal."""

from __future__ import annotations

import contextlib
import csv
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orchestrator.catalog.probes import Extra, Handler
from orchestrator.errors import (
    CommandFailed,
    EvidenceError,
    GuestError,
    LabError,
    NotEntered,
    UnsupportedError,
)
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.results.contract import ProgramRuns


@contextlib.contextmanager
def cleanup_after(remove: Callable[[], object]) -> Iterator[None]:
    """Call ``remove`` at the end, to remove a probe. Raises its errors only if the guest stays in use."""
    try:
        yield
    except (NotEntered, UnsupportedError):
        # The guest itself is fine and stays in use, so the probe's removal must be proved even after this error.
        remove()
        raise
    except LabError as error:
        # Report the first error. A guest in trouble gets no commands.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed, EvidenceError):
                remove()
        raise
    remove()


FEWEST_FRAMES = 2
"""Frames of a kernel's stack in a system call: the call's function and the entry. The caller is missing where the
unwinder goes by frame pointers and the probe is at the function's first instruction."""
MOST_VALUES = 8
"""Number of distinct values that are kept, as in ``images/guest/results.h``."""


@dataclass(frozen=True)
class CallResults:
    """What the ``observed`` calls returned, ``failed`` of them an error.

    A value from -4095 to -1 is an error as the kernel returns it; any other is not negative. ``values`` are the first
    distinct values and the number of calls that returned each, in order of first occurrence; ``unlisted`` calls
    returned further values. ``before_failure`` calls preceded the first failed one. ``last`` is the last value,
    meaningless without calls.
    """

    observed: int
    failed: int
    before_failure: int
    values: tuple[tuple[int, int], ...]
    unlisted: int
    last: int

    @property
    def endings(self) -> frozenset[int]:
        """The errors among the values, and 0 for every success."""
        return frozenset(min(value, 0) for value, _ in self.values)

    @property
    def stopped_succeeding(self) -> bool:
        """Whether calls first succeeded, and from one of them on all failed."""
        return 0 < self.before_failure == self.observed - self.failed < self.observed

    def followed_by(self, later: CallResults) -> CallResults:
        counts = Counter(dict(self.values))
        counts.update(dict(later.values))
        values = tuple(counts.items())
        return CallResults(
            observed=self.observed + later.observed,
            failed=self.failed + later.failed,
            before_failure=self.before_failure + (0 if self.failed else later.before_failure),
            values=values[:MOST_VALUES],
            unlisted=self.unlisted + later.unlisted + sum(calls for _, calls in values[MOST_VALUES:]),
            last=later.last if later.observed else self.last,
        )


@dataclass(frozen=True)
class Called:
    """The calls that were made: their number, the processes, and what is known of each call.

    For a system call: its ``number``, the six ``arguments``, the last ``result``, and all ``results``. ``live`` are the
    bytes that the process executed at a place, if it was asked.
    """

    entry: str
    calls: int
    pids: frozenset[int]
    number: int | None = None
    arguments: tuple[int, ...] = ()
    result: int | None = None
    results: CallResults | None = None
    live: bytes | None = None


class Reader(NamedTuple):
    """A process group in the guest that reads what hits write, and is stopped while calls are timed.

    At most so many calls have ``room`` for what they write until it reads again.
    """

    group: int
    room: int


class Attachment(ABC):
    """An armed probe, made by ``attached`` of ``arming.py``. ``point`` is where its evidence is."""

    point: ProbePoint
    entered_module: str | None = None
    """The module whose handler does not count itself: QEMU's counts of its functions' entries prove the hits."""

    @abstractmethod
    def observe(self) -> Observation:
        """Read all sources of evidence at the probe point."""

    @abstractmethod
    def wait_until_armed(self) -> Observation:
        """Wait until all sources agree on the mechanism. Raises EvidenceError with what they show instead."""

    @abstractmethod
    def set_handler(self, handler: Handler) -> None:
        """Choose what a hit does. The probe stays armed.

        ``count`` and ``record`` start empty; their results are final once ``noop`` replaces them. Raises
        UnsupportedError if the probe cannot record.
        """

    def separate_caller(self) -> AbstractContextManager[str | None]:
        """Count one process's hits separately; yields the guest's file, if any, to which it must write its PID.

        The histograms and buffers of tracefs have each hit's thread anyway.
        """
        return contextlib.nullcontext()

    @abstractmethod
    def counts(self, called: Called) -> tuple[int, int | None]:
        """Hits by the calls and by others (None: not separate). Raises EvidenceError if any hit was missed."""

    @abstractmethod
    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        """Events of the calls, each checked, and of others; writes all to ``file`` as CSV. Raises EvidenceError."""

    def renewal(self) -> Callable[[], None] | None:
        """Empties the buffer that the handler records into, if a hit's cost depends on how full that is."""
        return None

    def reader(self, call: Callable[[int], object]) -> Reader | None:
        """Who reads what the hits of calls write, if they write anything. ``call`` makes so many calls.

        Raises EvidenceError where there is no room for one.
        """
        return None

    def program_runs(self) -> Sequence[ProgramRuns]:
        """The runs of each program of a tool in the counted calls."""
        return ()

    def extras(self) -> Sequence[Extra]:
        """Extra costs of a hit besides the handler, from what the kernel shows at the probe point."""
        return ()

    def disable(self, extra: Extra) -> None:
        """Permanently disable an extra cost of the probe. Raises EvidenceError if hits still incur it."""
        raise AssertionError(f"nothing here has {extra} to take off")

    has_buffers = False
    """Whether hits may send records to a reader of the lab's."""

    def written_buffers(self) -> Sequence[str]:
        """The names of the buffers that counted hits have written into."""
        return ()

    def fill(self) -> None:
        """Leave all buffers without room for one more record, for good."""
        raise AssertionError("nothing here has buffers")

    def facts(self) -> Mapping[str, int | str]:
        """Parameters of the cell that only the armed probe knows."""
        return {}

    def runs_among(self, executed: Mapping[int, int]) -> int | None:
        """Hits by how often the instructions at addresses of generated code were executed; None where it has none.

        Raises EvidenceError where programs of one probe ran unequally often.
        """
        return None

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        """Learn how often ``calls``, as they are timed, executed the instructions at addresses of generated code."""
        del executed, calls

    def with_code_lines(self, profile: CellProfile) -> CellProfile:
        """A profile of calls that hit the probe, with the source lines of the code that the kernel generated for it."""
        return profile

    def detour(self, seen: Observation) -> str | None:
        """The range of the detour buffer that the jump at the probe point leads into; None without one."""
        return None


def write_events(file: Path | None, heading: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write events as CSV, if a file is given."""
    if file is not None:
        with file.open("w", newline="", encoding="ascii") as opened:
            writer = csv.writer(opened, lineterminator="\n")
            writer.writerow(heading)
            writer.writerows(rows)
