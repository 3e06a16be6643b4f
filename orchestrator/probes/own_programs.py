# SPDX-License-Identifier: GPL-2.0-only
"""A user's BPF programs in a guest: attached by libbpf as their sections say, counted, detached and proved gone.

The guest's side is ``images/bpf/bpfload.c``. While hits are counted a witness of the lab's counts those at the probe
point by thread, and each of the user's programs must have run as often.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.catalog.probes import Handler, ProbeKind
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.bpf_program import BpfProgram, Target, wait_until_gone
from orchestrator.probes.called import Called
from orchestrator.probes.evidence import Observation, followed, observe
from orchestrator.probes.optimiser import wait_until_armed, wait_until_same
from orchestrator.probes.place import place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.program_removal import programs_removed
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracer import Traced
from orchestrator.probes.witness import Witness

_LOADER = "/tmp/bpfload"  # noqa: S108 - in the guest
_OBJECT = "/tmp/own.bpf.o"  # noqa: S108 - in the guest
_FOLDER = "/sys/fs/bpf/lab-own"
_ATTACHED = re.compile(r"(\d{1,10}) ([A-Za-z_]\w{0,127}) (\S{1,200})")
_AT_FUNCTION = re.compile(
    r"(?:kprobe|kretprobe|kprobe\.multi|kretprobe\.multi|kprobe\.session|fentry|fexit|fmod_ret)(?:\.s)?/([^+]+)(?:\+.*)?"
)
_AT_SYSTEM_CALL = re.compile(r"k(?:ret)?syscall/(\w+)")
_FEWEST = 500
"""Hits of a program that is at no function: its runs for other processes, some tens, must not pass for them."""
_QUOTED_LINES = 20
_QUOTED_WIDTH = 200


@dataclass(frozen=True)
class OwnProgram:
    """One of the programs that are attached: its number and name, and where its section says that it goes."""

    number: int
    name: str
    section: str
    program: BpfProgram


class OwnAttachment(Attachment):
    """The programs of a user's object, which do what they do at each hit. Made by ``own_attached``."""

    def __init__(
        self, guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols, programs: Sequence[OwnProgram]
    ) -> None:
        self._guest = guest
        self._kind = kind
        self._symbols = symbols
        self._called: dict[tuple[bytes, Traced], str] = {}
        self._programs = programs
        # At the entry, where the object's own kprobes are.
        self._witness = Witness(guest, Target("kprobe", *point.place(0)))
        self.point = point

    def observe(self) -> Observation:
        """Read both sources of evidence at the probe point, and whether the programs are compiled."""
        for own in self._programs:
            if not own.program.info().jited:
                raise EvidenceError(f"the BPF program {own.name} is interpreted, and not compiled")
        seen = observe(self._guest, self.point, self._kind.site)
        return followed(self._guest, lambda: self._symbols, self._kind, self.point, seen, self._called)

    def wait_until_armed(self) -> Observation:
        """Nothing is waited for: a link is in place when it has been made."""
        return wait_until_armed(self._guest, self._kind, self.point, self.observe, "after attaching")

    def handle(self, handler: Handler) -> None:
        """The programs always do the same. Between ``count`` and ``noop`` their runs are compared with the witness."""
        if handler == "record":
            raise UnsupportedError("BPF programs of your own have no handlers, so they cannot record")
        if handler == "noop" and self._witness.is_counting:
            self._witness.look()

    @contextlib.contextmanager
    def one_caller(self) -> Iterator[None]:
        """A witness counts by thread while the kernel counts the programs' runs."""
        before = self.observe()
        self._witness.begin([(f"the BPF program {own.name} ({own.section})", own.program) for own in self._programs])
        yield
        self._witness.detach()
        wait_until_same(self._guest, self._kind, before, self, "after the witness")
        self._witness.end()

    def counts(self, called: Called) -> tuple[int, int | None]:
        """What the witness saw. Raises EvidenceError where runs for other processes may stand for the hits."""
        hits, others = self._witness.counts(called)
        everywhere = [own for own in self._programs if _function_of(own) is None]
        if everywhere and called.calls and 0 < hits < _FEWEST:
            raise EvidenceError(
                f"{hits} hits are too few to prove the BPF program {everywhere[0].name} ({everywhere[0].section}) by: "
                "it is at no function, and runs for other processes too",
                hint=f"make {_FEWEST} calls or more",
            )
        return hits, others

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        """Not reached: ``handle`` refuses to record."""
        raise AssertionError("a user's programs do not record")


@contextlib.contextmanager
def own_attached(
    guest: Guest, kind: ProbeKind, own: BpfObject, point: ProbePoint, symbols: Symbols
) -> Iterator[OwnAttachment]:
    """Load and attach a user's object; detach its programs at the end, and prove that the kernel has none of them.

    Raises EvidenceError with libbpf's and the verifier's words where it is refused, where a program is attached to
    another function than the point's, or where the original bytes are not back at the end.
    """
    numbers: list[int] = []
    with programs_removed(guest, kind, own.tool, place_of(guest, kind, point, symbols)):
        guest.put(own.loader, _LOADER, mode=0o755)
        guest.put(own.file, _OBJECT)
        with sharing_explained(point):
            programs = _attached(guest, kind)
        numbers = [one.number for one in programs]
        for one in programs:
            check_place(one, point)
        yield OwnAttachment(guest, kind, point, symbols, programs)
    wait_until_gone(guest, numbers)


def _attached(guest: Guest, kind: ProbeKind) -> Sequence[OwnProgram]:
    guest.succeed(["mkdir", _FOLDER])
    finished = guest.run([_LOADER, "attach", _FOLDER, _OBJECT])
    if finished.status != 0:
        raise EvidenceError(f"{kind.name} cannot be attached", detail=_last(finished.stderr.decode(errors="replace")))
    lines = finished.text.splitlines()
    found = [match for line in lines if (match := _ATTACHED.fullmatch(line))]
    if not found or len(found) != len(lines):
        raise EvidenceError(
            f"the guest does not say which programs of {kind.name} are attached", detail=_last(str(lines))
        )
    return [OwnProgram(int(one[1]), one[2], one[3], BpfProgram(guest, f"{_FOLDER}/{one[2]}")) for one in found]


@contextlib.contextmanager
def sharing_explained(point: ProbePoint) -> Iterator[None]:
    """Add to an EvidenceError of what a user attaches by name that the name has several functions, if it has."""
    try:
        yield
    except EvidenceError as error:
        if point.shared_with and not error.hint:
            error.hint = (
                f"{point.symbol} is a function of the kernel and of module {' and '.join(point.shared_with)}, and the "
                "kernel may refuse a name that is not unique: unload the module, or name another function"
            )
        raise


def check_place(own: OwnProgram, point: ProbePoint) -> None:
    """Raise EvidenceError where a program is attached to another function than the point's; some have no function."""
    function = _function_of(own)
    if function is not None and not any(fnmatchcase(name, function) for name in (point.symbol, *point.aliases)):
        raise EvidenceError(
            f"program {own.name} is attached to {function}, and the point is {point.symbol}",
            hint=f"set points: [{function}], and calls that enter it",
        )


def _function_of(own: OwnProgram) -> str | None:
    """The function that a program is attached to, or a pattern of its name; None where it is at no function."""
    call = _AT_SYSTEM_CALL.fullmatch(own.section)
    if call is not None:
        return f"__*_sys_{call[1]}"
    place = _AT_FUNCTION.fullmatch(own.section)
    return None if place is None else place[1]


def _last(text: str) -> list[str]:
    """The last lines, where the verifier says why."""
    return [line[:_QUOTED_WIDTH] for line in text.splitlines() if line.strip()][-_QUOTED_LINES:]
