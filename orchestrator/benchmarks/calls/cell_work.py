# SPDX-License-Identifier: GPL-2.0-only
"""A cell of calls under measurement: its guest, its armed probe, its proof, and what the cells of a guest share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orchestrator.arch import INT3
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls.call_cells import CallCell, CallTask
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.preparation import SITES_WITHOUT_POINT, CallSetup
from orchestrator.benchmarks.calls.samples import Figures
from orchestrator.benchmarks.calls.whole_programs import WholeProgram, Workload
from orchestrator.catalog.probes import FETCHES, Extra, Handler, ProbeKind
from orchestrator.errors import EvidenceError, HitSkipped, NotEntered
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import shown
from orchestrator.probes.arming import attached
from orchestrator.probes.attachment import Attachment, CallResults
from orchestrator.probes.evidence import Observation, check_same, listed_probes
from orchestrator.probes.module_functions import module_functions
from orchestrator.probes.point import Point, ProbePoint
from orchestrator.profile.stored.cell_profile import SymbolProfile
from orchestrator.results.contract import ExecutedClasses, ProfileEvidence, ProgramRuns
from orchestrator.run.cell_deadline import CellDeadline
from orchestrator.run.ready_guest import ReadyGuest

_SameCalls = tuple[str, CallTask, int]
_Found = TypeVar("_Found")


class MeasuredBaseline(NamedTuple):
    """The figures of calls without a probe, the cell that timed them, and what it counted."""

    cell_id: str
    figures: Figures
    executed: ExecutedClasses | None


@dataclass
class GuestCache:
    """Results that cells of one guest on the exact clock share; each is proved to leave the kernel's text unchanged."""

    _baselines: dict[_SameCalls, MeasuredBaseline] = field(default_factory=dict)
    _switched: int = 0
    _found: dict[tuple[str, _SameCalls], Any] = field(default_factory=dict)
    _never: dict[tuple[_SameCalls, Point | None], NotEntered] = field(default_factory=dict)

    def baseline(self, cell: CallCell) -> MeasuredBaseline | None:
        """The baseline of the same calls, timed in this guest for another point or handler; None without one."""
        return self._baselines.get(_same_calls(cell))

    def keep_baseline(self, cell: CallCell, figures: Figures, executed: ExecutedClasses | None) -> None:
        self._baselines.setdefault(_same_calls(cell), MeasuredBaseline(cell.id, figures, executed))

    def note_switched(self, switched: int) -> None:
        """Drop the baselines if the kernel has switched static branches since: calls may cost something else now."""
        if switched != self._switched:
            self._baselines.clear()
        self._switched = switched

    def check_entered(self, cell: CallCell, kind: ProbeKind) -> None:
        """Raise NotEntered where another probe has proved that the calls never reach the cell's point.

        A user's own probe may be hit elsewhere, and some probes are at every system call: both are measured.
        """
        never = self._never.get((_same_calls(cell), cell.point))
        is_users = kind.file is not None or kind.has_own_programs
        is_at_point = kind.mechanism != "none" and not is_users and kind.site not in SITES_WITHOUT_POINT
        if never is not None and is_at_point:
            raise never

    def keep_not_entered(self, cell: CallCell, error: NotEntered) -> None:
        self._never.setdefault(
            (_same_calls(cell), cell.point),
            NotEntered(error.what, hint=error.hint, detail=[*error.detail, f"seen by {cell.id}"]),
        )

    def once(self, what: str, cell: CallCell, find: Callable[[], _Found]) -> _Found:
        same = what, _same_calls(cell)
        if same not in self._found:
            self._found[same] = find()
        answer: _Found = self._found[same]
        return answer


def _same_calls(cell: CallCell) -> _SameCalls:
    # A task without arguments has its benchmark's: gtodbench and syscall call gettimeofday with others.
    return cell.benchmark, replace(cell.task, hits=1, refusal=None), cell.repeats


@dataclass(frozen=True)
class HitCounts:
    """Hits of the calls and of other processes, traps, and results, where known.

    ``besides`` are hits of the program itself.
    ``live`` are the bytes at the point in the process that made the calls, if the kernel changes them at the first hit.
    """

    hits: int
    foreign_hits: int | None
    int3: int | None
    results: CallResults | None
    besides: int = 0
    live: bytes | None = None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shown(names, 8, "{} more"))


class Entries(NamedTuple):
    """How often calls entered functions of a module, by name, and their breakpoint traps."""

    calls: int
    by_function: Mapping[str, int]
    int3: int

    @classmethod
    def of(cls, symbols: Iterable[SymbolProfile], module: str, calls: int) -> Entries:
        """What a profile of calls has of a module's functions: the executions of their first instructions."""
        entered: dict[str, int] = {}
        int3 = 0
        for symbol in symbols:
            int3 += sum(each.executed for each in symbol.instructions if each.code == f"{INT3:02x}")
            if symbol.module == module:
                first = sum(each.executed for each in symbol.instructions if each.offset == 0)
                entered |= {symbol.name: first} if first else {}
        return cls(calls, entered, int3)

    def proved(self, hits: int, module: Module, guest: Guest) -> list[str]:
        """The functions entered in so many hits, as ``handler_pre [my_module]``. Raises EvidenceError without one."""
        handlers = sorted(f"{name} [{module.name}]" for name, times in self.by_function.items() if times == hits)
        if handlers:
            return handlers
        if self.by_function:
            times = [f"{name} {number} times" for name, number in sorted(self.by_function.items())]
            each, rest = divmod(max(self.by_function.values()), self.calls)
            raise EvidenceError(
                f"{self.calls} calls should enter the handler of module {module.name} {hits} times, and entered "
                f"{_listed(times)}",
                hint=f"if each call should, set hits: {each}" if each and not rest else "",
            )
        functions, at = module_functions(module.name, module.file), listed_probes(guest)
        raise EvidenceError(
            f"the calls executed no function of module {module.name}",
            detail=[
                f"its functions: {_listed(functions)}" if functions else "its file lists no functions",
                f"the kernel lists probes at {_listed(at)}" if at else "the kernel lists no probe",
            ],
            hint="make calls that reach the module's probe, or probe what the calls reach",
        )


class CallCounts(NamedTuple):
    """What the calls executed: the proof of a profile, and the classes for modelled time; None where not counted.

    ``no_profile`` is why these calls have none, if QEMU cannot count them; ``no_plain_profile`` why those without the
    probe have none, of calls that vary. ``uneven`` are the functions that not all of calls that vary execute alike.
    ``entries`` are those of a module that does not count its hits.
    """

    profile: ProfileEvidence | None = None
    executed: ExecutedClasses | None = None
    uneven: Sequence[str] = ()
    entries: Entries | None = None
    no_profile: str = ""
    no_plain_profile: str = ""


@dataclass(frozen=True)
class PointObservations:
    """The observations at the probe point during the timed pass and the counting pass; None for what is not known.

    ``extras`` are extra costs of the hits, ``extra_sizes`` the instructions a hit that each takes, ``removed`` the
    extras that were disabled. ``watched`` are the results of the system calls that a user's function makes.
    ``timed_in`` is the cell of the same guest that timed the same calls without a probe; None where this cell did.
    ``entered`` are the functions of a module whose entries prove the hits, ``programs`` those of a tool, with their
    runs. ``hits_per_call`` is known of a command's run alone; the workload knows those of calls.
    """

    point: ProbePoint
    seen: Observation
    calls: int
    counted: HitCounts = HitCounts(0, None, 0, None)
    detour: str | None = None
    facts: Mapping[str, int | str | float] = field(default_factory=dict)
    extras: Sequence[Extra] = ()
    extra_sizes: Mapping[Extra, float] | None = None
    removed: Sequence[Extra] = ()
    timed_in: str | None = None
    counts: CallCounts = field(default_factory=CallCounts)
    entered: Sequence[str] = ()
    watched: Mapping[str, CallResults] = field(default_factory=dict)
    programs: Sequence[ProgramRuns] = ()
    hits_per_call: int | None = None


@dataclass(frozen=True)
class CellContext:
    """A cell under measurement: its guest, its point and workload, its deadline, and the file for its profile.

    If it ``varies``, calls differ from each other on the exact clock, and each is timed alone.
    """

    ready: ReadyGuest
    cell: CallCell
    setup: CallSetup
    workload: Workload
    kind: ProbeKind
    point: ProbePoint
    deadline: CellDeadline
    cache: GuestCache
    profile: Path | None = None
    varies: bool = False

    @property
    def handler(self) -> Handler:
        """What the attached probe is told to do: what it fetches is part of its kind."""
        return "record" if self.cell.handler in FETCHES else self.cell.handler

    @property
    def counted(self) -> WholeProgram | None:
        """The workload, if it is a program whose runs are counted by system call."""
        return self.workload if isinstance(self.workload, WholeProgram) and self.workload.is_counted else None

    @property
    def exact(self) -> Calls | None:
        """The workload, if its samples must be equal."""
        workload = self.workload
        is_exact = self.cell.clock == "instructions" and not self.varies
        return workload if is_exact and isinstance(workload, Calls) else None


@dataclass(frozen=True)
class Armed:
    """An armed probe: as it was seen then, its detour, and the extras that were disabled."""

    kind: ProbeKind
    attachment: Attachment
    seen: Observation
    detour: str | None
    removed: Sequence[Extra]

    def check_same(self, when: str) -> None:
        """Raise EvidenceError unless the probe is as it was when it was armed."""
        check_same(self.kind, self.seen, self.attachment.observe(), self.attachment.point, when)

    def proof(self, calls: int, counted: HitCounts, **known: Any) -> PointObservations:
        """The proof of hits that were ``counted`` in ``calls``, with what else is ``known`` of them."""
        probe, seen = self.attachment, (self.seen, calls, counted, self.detour)
        known["programs"] = probe.program_runs()
        return PointObservations(probe.point, *seen, probe.facts(), removed=self.removed, **known)


MOST_PASSES = 5
"""Tries of a counting pass."""


def without_skips(count: Callable[[], _Found]) -> _Found:
    """What a counting pass found in which the kernel skipped no hit.

    Since Linux 6.13 the probes of the tracepoints of system calls can be preempted, and the hit of a thread that runs
    meanwhile is skipped: three in some passes of a program that takes a stack.
    """
    for _ in range(MOST_PASSES - 1):
        with suppress(HitSkipped):
            return count()
    return count()


@contextmanager
def armed_probe(work: CellContext) -> Iterator[Armed]:
    """Arm and observe. At the end ``attached`` disarms and checks that the original bytes are back."""
    ready, means = work.ready, work.setup.module or work.setup.tool
    with attached(ready.guest, work.kind, means, work.point, ready.symbols, work.deadline.left) as attachment:
        if work.cell.handler != "noop":
            attachment.set_handler(work.handler)
        removed = attachment.extras() if work.kind.extras == "removed" else ()
        for extra in removed:
            attachment.disable(extra)
        seen = attachment.wait_until_armed()
        yield Armed(work.kind, attachment, seen, attachment.detour(seen), removed)
