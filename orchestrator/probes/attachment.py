# SPDX-License-Identifier: GPL-2.0-only
"""A probe that is armed in a guest, whatever arms it: its final form, its calls, and its removal."""

from __future__ import annotations

import contextlib
import csv
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.probes import Extra, Handler, ProbeKind
from orchestrator.errors import (
    CommandFailed,
    EvidenceError,
    GuestError,
    LabError,
    NotEntered,
    OtherMechanism,
    UnsupportedError,
)
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation, check_armed, check_same, check_untouched
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols


@contextlib.contextmanager
def removed(remove: Callable[[], object]) -> Iterator[None]:
    """Remove a probe at the end. Raises what ``remove`` raises where the guest is used on."""
    try:
        yield
    except (NotEntered, UnsupportedError):
        # Nothing is in trouble. The guest is used on, so the probe must be proved gone as one that was hit.
        remove()
        raise
    except LabError as error:
        # The first error is the one to report. A guest in trouble gets no commands.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed, EvidenceError):
                remove()
        raise
    remove()


MOST_VALUES = 8
"""Different values that are kept, as by ``images/guest/results.h``."""


@dataclass(frozen=True)
class CallResults:
    """What ``observed`` calls returned; ``failed`` of them an error.

    A value from -4095 to -1 is an error as the kernel returns it; any other is not negative. ``values`` are the first
    different ones with the number of calls that returned each, in the order of their first calls; ``other`` calls
    returned further ones. ``before_failure`` calls were observed before the first that failed. ``last`` is the last
    value, and has no meaning without calls.
    """

    observed: int
    failed: int
    before_failure: int
    values: tuple[tuple[int, int], ...]
    other: int
    last: int

    @property
    def endings(self) -> frozenset[int]:
        """The errors among the values, as they were returned, and 0 for every success."""
        return frozenset(min(value, 0) for value, _ in self.values)

    @property
    def stopped_succeeding(self) -> bool:
        """Whether calls succeeded at first, and all failed from one of them on."""
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
            other=self.other + later.other + sum(calls for _, calls in values[MOST_VALUES:]),
            last=later.last if later.observed else self.last,
        )


@dataclass(frozen=True)
class Called:
    """How many calls were made, by which processes, and what is known of each.

    Of a system call ``number`` and the six ``arguments`` are known, what the last one returned, and what all did.
    """

    entry: str
    calls: int
    pids: frozenset[int]
    number: int | None = None
    arguments: tuple[int, ...] = ()
    result: int | None = None
    results: CallResults | None = None


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
        """Count apart the hits of the process that writes its number to a file of the guest's: its path, if it must."""

    @abstractmethod
    def counts(self, called: Called) -> tuple[int, int | None]:
        """Hits of the calls, and of others (None: not counted apart). Raises EvidenceError where any was missed."""

    @abstractmethod
    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        """Events of the calls, each checked, and of others; all go to the ``file`` as CSV. Raises EvidenceError."""

    def renewal(self) -> Callable[[], None] | None:
        """What empties the place that the handler records into, where a hit's cost depends on how full that is."""
        return None

    def extras(self) -> Sequence[Extra]:
        """What a hit passes at present besides the handler, by what the kernel finds at the probe point."""
        return ()

    def take_off(self, extra: Extra) -> None:
        """Disable an extra cost of the probe for good. Raises EvidenceError when the hits still pass it."""
        raise AssertionError(f"nothing here has {extra} to take off")

    def memory(self) -> tuple[int, int] | None:
        """Bytes of a kprobe, and those that the kernel takes besides for an optimised one; None where it is neither."""
        return None

    def places(self) -> Mapping[str, int]:
        return {}

    def detour(self, seen: Observation) -> str | None:
        """The range of the detour buffer that the jump at the probe point leads into; None without one."""
        return None


# When has a probe its final form? The kernel's optimiser of kprobes works in the background, ticks later, and so does
# the end of a BPF program's link on Linux 6.12.

OPTIMISATION = "/proc/sys/debug/kprobes-optimization"

_TURNS = 100
"""Turns until a jump must be in place, or gone."""
_MARKED = 10
"""Turns until a kprobe that may be optimised is marked so, with a wide margin."""
_OPTIMISER_TURN = "0.3"
"""Guest seconds in which the optimiser has had its turn: it begins five ticks after it is asked to."""


def write_events(file: Path | None, heading: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write events as CSV where a file is given for them."""
    if file is not None:
        with file.open("w", newline="", encoding="ascii") as opened:
            writer = csv.writer(opened, lineterminator="\n")
            writer.writerow(heading)
            writer.writerows(rows)


def allow_optimisation(guest: Guest, kind: ProbeKind) -> None:
    """Let the kernel optimise kprobes that are registered from now on, or not, as the kind has it."""
    guest.put(b"1" if kind.optimisation else b"0", OPTIMISATION)


def wait_until_armed(
    guest: Guest,
    kind: ProbeKind,
    point: ProbePoint,
    look: Callable[[], Observation],
    when: str,
    check_called: Callable[[Observation], None] = lambda seen: None,
) -> Observation:
    """Look until the probe has the kind's mechanism, and hits lead to it alone, by ``check_called``.

    Raises EvidenceError with what it has instead.
    """

    def check(seen: Observation) -> None:
        check_armed(kind, point, seen, when)
        check_called(seen)

    if kind.optimisation and kind.mechanism != "jump":
        # That it is not optimised is evidence only after the optimiser has had its turn.
        guest.succeed(["sleep", _OPTIMISER_TURN])
    turns = _TURNS if kind.mechanism == "jump" or kind.program is not None else 0
    return _wait_for(guest, look, check, turns)


def wait_until_untouched(
    guest: Guest, kind: ProbeKind, point: ProbePoint, look: Callable[[], Observation], when: str
) -> None:
    """Look until the original bytes are back. Raises EvidenceError where they are not."""
    has_programs = kind.program is not None or kind.has_own_programs
    turns = _TURNS if kind.optimisation or has_programs else 0
    _wait_for(guest, look, lambda seen: check_untouched(point, seen, when), turns)


def wait_until_same(guest: Guest, kind: ProbeKind, before: Observation, attachment: Attachment, when: str) -> None:
    """Look until a probe is as it was before another joined it. Raises EvidenceError where it is not."""
    _wait_for(guest, attachment.observe, lambda seen: check_same(kind, before, seen, attachment.point, when), _TURNS)


def _wait_for(
    guest: Guest, look: Callable[[], Observation], check: Callable[[Observation], None], turns: int
) -> Observation:
    turn = 0
    while True:
        try:
            seen = look()
            check(seen)
            return seen
        except EvidenceError as error:
            # The kernel marks a kprobe that it is going to optimise as it arms it (optimize_kprobe()).
            if turn == turns or (turn == _MARKED and isinstance(error, OtherMechanism)):
                raise
        guest.succeed(("sleep", "0.1"))
        turn += 1
