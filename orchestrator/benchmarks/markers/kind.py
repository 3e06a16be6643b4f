# SPDX-License-Identifier: GPL-2.0-only
"""Markers: the cost of one round of a loop with a marker in it, as in the document of 2006."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from orchestrator.arch import JMP
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.markers.rows import BENCHMARK, PREFIX, MarkerRow, marker_benchmarks, marker_row
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import EvidenceError, GuestRefusal
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.table import DEFAULT_REPEATS, BenchmarkChoice, RowsTable
from orchestrator.experiment.table_kind import BenchmarkEntry, Listing
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest import Guest
from orchestrator.guest.trap_counter import INT3
from orchestrator.probes.arming import Parameters
from orchestrator.probes.attachment import cleanup_after
from orchestrator.probes.loading import load
from orchestrator.profile.code.instruction_classes import executed_classes
from orchestrator.profile.counted.counter import Counter, stored
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.results.contract import PER_LOOP, CellRecord, Evidence, valid_result
from orchestrator.results.parameters import ROUNDS
from orchestrator.results.printed_json import Printed
from orchestrator.results.statistics import mean
from orchestrator.run.benchmark_kind import BenchmarkKind, Prepared, Session
from orchestrator.run.cell_deadline import CellDeadline
from orchestrator.run.cell_records import changed, identity, kernel_facts
from orchestrator.run.guest_checks import CLOCKSOURCE, check_clocksource, permitted_taint
from orchestrator.run.ready_guest import ReadyGuest, measure_in_one_guest
from orchestrator.run.user_modules import template_outcome
from orchestrator.steps import step

COUNTED_ROUNDS = 1000
"""Rounds of a counting pass, each of which executes the marker once."""

_LISTED = re.compile(r"(\S{1,64}) (optimized|generic) (\S{1,16}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) (.{0,100})")
_PLACE = re.compile(r"(\w{1,64}) ([0-9a-f]{1,16})")
_PROBE = re.compile(r"(-|\w{1,40})")


@dataclass(frozen=True)
class MarkerLoops:
    """The module ``markers``, loaded in a guest as ``module_name``. It runs the loops with interrupts off.

    ``left`` returns the host seconds that remain for a run, and raises when there are none. A refused write raises
    GuestError, a refused connection EvidenceError.
    """

    guest: Guest
    module_name: str
    left: Callable[[], float] = lambda: COMMAND_LIMIT

    @property
    def parameters(self) -> Parameters:
        return Parameters(self.guest, self.module_name)

    def timed(self, loop: str, rounds: int, *, copies: bool = False) -> tuple[int, int]:
        """TSC units of ``rounds`` rounds, and of twice as many: their difference is without the loop's fixed cost.

        Where the connected probe ``copies`` its arguments, the copies must be correct after each run.
        """
        taken = []
        for times in (1, 2):
            taken.append(self._run(loop, times * rounds))
            copied, passed = (self.parameters.read(name) if copies else "" for name in ("copied", "passed"))
            if copied != passed:
                copied_line, passed_line = (" / ".join(texts.splitlines())[:80] for texts in (copied, passed))
                raise EvidenceError(f"the probe of {loop} copied {copied_line!r}, and {passed_line!r} was passed")
        once, twice = taken
        if twice <= once:
            raise EvidenceError(f"{2 * rounds} rounds of {loop} took {twice} TSC units, and {rounds} took {once}")
        return once, twice

    def connect(self, loop: str, probe: str) -> None:
        """Connect a probe to the loop's marker, which must have none. The error of a refusal quotes the module."""
        try:
            self.parameters.put("armed", f"{loop} {probe}")
        except GuestRefusal as error:
            log = self.guest.run(["dmesg"]).text
            reasons = re.findall(rf"{re.escape(self.module_name)}: marker {re.escape(loop)}: (.{{1,200}})", log)
            what = reasons[-1] if reasons else error.what
            raise EvidenceError(f"{probe} cannot be connected to {loop}: {what}") from None

    def exchange(self, probe: str) -> None:
        """Replace the connected probe in the same connection. Raises GuestError for an unknown one."""
        self.parameters.put("probe", probe)

    def probe(self) -> str:
        """The probe that the marker calls; ``-`` where none is connected, an address where it is not the module's."""
        return self.parameters.found("probe", _PROBE)[0]

    def disconnect(self) -> None:
        self.parameters.put("armed", "-")

    def count(self, loop: str) -> tuple[int, int]:
        """Run COUNTED_ROUNDS rounds; return the connected probe's calls, and those with wrong arguments."""
        before = self._number("hits"), self._number("wrong")
        self._run(loop, COUNTED_ROUNDS)
        return self._number("hits") - before[0], self._number("wrong") - before[1]

    def address(self, loop: str, place: str) -> int:
        """The address of the loop's marker: of its instruction (``immediate``) or ``flag``, or of the patched place.

        ``loop`` is the first instruction of the loop.
        """
        is_listed = place in ("immediate", "flag")
        pattern, group = (_LISTED, 4 if place == "immediate" else 5) if is_listed else (_PLACE, 2)
        name = loop if is_listed or place == "loop" else place
        lines = self.parameters.read("markers" if is_listed else "places").splitlines()
        listed = [pattern.fullmatch(line) for line in lines]
        addresses = {int(match[group], 16) for match in listed if match and match[1] == name}
        if len(addresses) != 1 or not min(addresses):
            raise EvidenceError(f"the module reports {len(addresses)} places of {loop}, not one")
        return addresses.pop()

    def _run(self, loop: str, rounds: int) -> int:
        self.guest.put(f"{loop} {rounds}".encode(), self.parameters.file("run"), time_limit=self.left())
        return self._number("taken")

    def _number(self, parameter: str) -> int:
        return self.parameters.numbers(parameter)[0]


MarkerCell = Cell[str]
"""Its task is a row of the document by its name, ``marker.ROW``; ``none`` is the empty loop."""


_JUMPS = (bytes([JMP]), b"\xeb")
_NOPS = (b"\x0f", b"\x66", b"\x3e")
_UNPATCHED = {"immediate": (b"\xb0\x00",), "flag": (b"\x00",), "static_key": _NOPS, "tracepoint": _NOPS}
_PATCHED = {
    "immediate": (b"\xb0\x01",),
    "flag": (b"\x01",),
    "static_key": _JUMPS,
    "tracepoint": _JUMPS,
    "int3": (b"\xcc",),
}
"""How a place begins without a connected probe, where that is known, and with one."""


def measure_marker(
    ready: ReadyGuest, cell: MarkerCell, module: Module, notes: Sequence[str], profile: Path | None = None
) -> CellRecord:
    """Measure a loop and prove it. The comparison with the empty loop adds the overhead later.

    The profile is written to the file ``profile``, if it is given. Raises EvidenceError when a proof fails, GuestError
    when the guest fails or the cell's time is over.
    """
    row, is_baseline = marker_row(cell.task), cell.task == BASELINE
    assert row is not None
    guest = ready.guest
    mark = guest.console.length()
    counter = None if profile is None else Counter(guest, ready.symbols, module)
    armed = {}
    load(guest, module.name, module.file)
    with cleanup_after(partial(guest.succeed, ["rmmod", module.name])):
        loops = MarkerLoops(guest, module.name, CellDeadline(cell.time_limit).left)
        marker = _Marker(loops, row, loops.address(row.loop, row.place))
        original = marker.look()
        if not original.startswith(_UNPATCHED.get(row.place, original)):
            what = f"{row.loop} is not as it is without a probe: its bytes are {original.hex(' ')}"
            raise EvidenceError(f"after loading, {what}")
        with marker.connected(row.probe):
            timed = marker.look()
            marker.check_patched(row.probe, timed, original, "before the rounds")
            marker.check_probe(row.probe, "before the rounds")
            samples, profiled = _samples(loops, row, cell, counter)
            marker.check_same(timed, "while the rounds ran")
            marker.check_probe(row.probe, "after the rounds")
            if row.probe is not None:
                hits, int3 = marker.counted_in_place(row.probe, timed)
        marker.check_same(original, "after disconnecting")
        if row.probe is None:
            # It was timed without a probe. Connecting one proves that the marker is there.
            with marker.connected(row.counting):
                counted = marker.look()
                marker.check_patched(row.counting, counted, original, "before the counted rounds")
                hits, int3 = marker.count()
                marker.check_same(counted, "while the rounds were counted")
            marker.check_same(original, "after disconnecting")
            armed = {} if row.counting is None else {"armed_bytes": counted.hex()}
    guest.check_console(mark)
    check_clocksource(guest)
    evidence = None if profile is None or profiled is None else stored(profiled, profile)
    facts = {**kernel_facts(ready.artifacts.kernel), ROUNDS: row.rounds, **armed}
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **facts},
            status="ok",
            notes=tuple(notes),
            samples=samples,
            value=mean(samples),
            overhead=0.0 if is_baseline else None,
            interval=(0.0, 0.0) if is_baseline else None,
            evidence=Evidence(
                mechanism="none" if is_baseline else row.place.replace("_", "-"),
                probe_bytes=timed.hex(),
                hits=hits,
                int3=int3,
                calls=COUNTED_ROUNDS,
                hits_per_call=1 if row.counting else 0,
                restored=True,
                clocksource=CLOCKSOURCE,
                original_bytes=original.hex(),
                address=f"{marker.place:#x}",
                symbol=f"{module.name}.{row.loop}",
                flag="",
                taint=permitted_taint(guest),
                batches=2 * len(samples),
                disturbed=0,
            ),
            profile=evidence,
            executed=None if profiled is None else executed_classes(profiled),
        )


@dataclass(frozen=True)
class _Marker:
    """A row's marker in the loaded module, at the address ``place``. Checks raise EvidenceError."""

    loops: MarkerLoops
    row: MarkerRow
    place: int

    def look(self) -> bytes:
        size = {"immediate": 2, "flag": 1}.get(self.row.place, 5)  # 5: as long as a jump
        return self.loops.guest.read_memory(self.place, size)

    @contextmanager
    def connected(self, probe: str | None) -> Iterator[None]:
        if probe is not None:
            self.loops.connect(self.row.loop, probe)
        yield
        self.loops.disconnect()

    def count(self) -> tuple[int, int]:
        """Hits and breakpoint traps of a counting pass, which must be as many as expected."""
        with self.loops.guest.counted_interrupts() as traps:
            hits, wrong = self.loops.count(self.row.loop)
        expected = COUNTED_ROUNDS if self.row.counting else 0
        if (hits, wrong) != (expected, 0):
            raise EvidenceError(
                f"in {COUNTED_ROUNDS} rounds the probe was called {hits} times, not {expected}, "
                f"and {wrong} times with other arguments than were passed"
            )
        if traps[INT3] != hits * self.row.int3:
            raise EvidenceError(f"{hits} hits took {traps[INT3]} breakpoint traps, not {self.row.int3} each")
        return hits, traps[INT3]

    def counted_in_place(self, probe: str, timed: bytes) -> tuple[int, int]:
        """The same in the timed connection, with its ``probe`` replaced by a counting one for the pass."""
        assert self.row.counting is not None
        self.loops.exchange(self.row.counting)
        self.check_same(timed, "when the probe was exchanged")
        hits, int3 = self.count()
        self.check_same(timed, "while the rounds were counted")
        self.check_probe(self.row.counting, "after the counted rounds")
        self.loops.exchange(probe)
        self.check_same(timed, "when the probe was exchanged")
        self.check_probe(probe, "after the exchange")
        return hits, int3

    def check_same(self, before: bytes, when: str, live: bytes | None = None) -> None:
        live = self.look() if live is None else live
        if live != before:
            raise EvidenceError(f"{when}, the marker's bytes changed from {before.hex(' ')} to {live.hex(' ')}")

    def check_probe(self, probe: str | None, when: str) -> None:
        """The marker must call this probe; None where nothing may be connected."""
        called = self.loops.probe()
        if called != (probe or "-"):
            raise EvidenceError(f"{when}, the marker of {self.row.loop} calls {called}, not {probe or 'nothing'}")

    def check_patched(self, probe: str | None, live: bytes, original: bytes, when: str) -> None:
        """The place must be patched if a probe is connected, and original otherwise."""
        if probe is None:
            self.check_same(original, when, live)
        elif not live.startswith(_PATCHED.get(self.row.place, ())):
            raise EvidenceError(f"{when}, nothing is connected to {self.row.loop}: its bytes are {live.hex(' ')}")


def _samples(
    loops: MarkerLoops, row: MarkerRow, cell: MarkerCell, counter: Counter | None
) -> tuple[tuple[float, ...], CellProfile | None]:
    """Equal samples of whole instructions, and their profile. Raises EvidenceError for other samples."""
    count = max(2, cell.repeats)  # at least two, to check that they are equal
    written = 0 if counter is None else counter.mark()
    timed = [loops.timed(row.loop, row.rounds, copies=row.copies) for _ in range(count)]
    samples = [(twice - once) / row.rounds for once, twice in timed]
    if len(set(samples)) != 1:
        raise EvidenceError(f"samples of one boot differ: {', '.join(f'{s:.10g}' for s in samples)}")
    if not samples[0].is_integer():
        raise EvidenceError(f"a round of {row.loop} took {samples[0]:.10g} instructions, which is no whole number")
    if counter is None:
        return tuple(samples), None
    with step("count instructions"), counter.evaluating():
        return tuple(samples), counter.profile_rounds(written, timed, cell=cell.id, rounds=row.rounds)


class MarkersBenchmark(BenchmarkChoice):
    """Samples of loops."""

    repeats: Annotated[int, whole(1, 100)] = DEFAULT_REPEATS["instructions"]
    """Samples of each loop."""


class MarkersTable(RowsTable):
    """Machines, kernels and rows of the markers document; every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "classes")

    benchmark: MarkersBenchmark
    profile: Entries[Annotated[ProfilePart, one_of(lambda: MarkersTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went."""

    def row_prefix(self) -> str:
        return PREFIX


class ListedMarker(Printed):
    """A row of the benchmark of markers."""

    name: str
    """Its name in experiments."""
    loop: str
    """The loop's body."""
    rounds: int
    """Rounds of a sample."""


class MarkersKind(BenchmarkKind):
    """Loops with markers, one row a cell."""

    name = BENCHMARK
    table = MarkersTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {BENCHMARK: BenchmarkEntry(marker_benchmarks().listed_as)}

    def rows(self) -> Mapping[str, str]:
        return {f"{PREFIX}{row}": BENCHMARK for row in marker_benchmarks().rows}

    def lists(self) -> Mapping[str, Listing]:
        rows = [(f"{PREFIX}{name}", row.title, row.rounds) for name, row in marker_benchmarks().rows.items()]
        return {"markers": Listing(ListedMarker, lambda: rows)}

    def cells(self, name: str | None, table: MarkersTable) -> Generator[MarkerCell, None, None]:
        for place, rows in table.places(name):
            baseline = place.id(BASELINE, "noop")
            for row in rows:
                yield table.cell(
                    place,
                    (row, "noop"),
                    probe=row,
                    metric=PER_LOOP,
                    repeats=table.benchmark.repeats,
                    task=row,
                    parameters=table.guest_parameters,
                    compared_with=() if row == BASELINE else (baseline,),
                )

    def describe(self, cell: MarkerCell) -> str:
        row = marker_row(cell.task)
        return f"{cell.repeats} x {0 if row is None else row.rounds} rounds"

    def refused(self, kernel: Kernel, cells: Sequence[MarkerCell]) -> Mapping[str, str | None]:
        return {cell.id: unsupported_reason(kernel, cell) for cell in cells}

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[MarkerCell]
    ) -> Mapping[str, Prepared[Module]]:
        return dict.fromkeys((cell.id for cell in cells), template_outcome(context, kernel, "markers", cells[0].smp))

    def measure(self, session: Session, cells: Sequence[MarkerCell]) -> Generator[CellRecord, None, None]:
        def measured(ready: ReadyGuest, cell: MarkerCell) -> CellRecord:
            prepared = session.setup(cell)
            return measure_marker(ready, cell, prepared.setup, prepared.notes, session.profile_file(cell))

        return measure_in_one_guest(session, cells, measured)

    def compare(self, cell: MarkerCell, record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead over the empty loop."""
        baseline = next((other_cell.value for other_cell in other_cells), None)
        if cell.task == BASELINE or baseline is None or record.value is None:
            return record
        overhead = record.value - baseline
        return changed(record, overhead=overhead, interval=(overhead, overhead))


def unsupported_reason(kernel: Kernel, cell: MarkerCell) -> str | None:
    """Why this kernel does not support the row; None where it does."""
    row = marker_row(cell.task)
    if row is not None and row.on_stack and kernel.spec.arch == "x86_64":
        return "asmlinkage means nothing on x86_64: the probe's arguments are in registers, not on the stack"
    if row is not None and row.guarded and kernel.config.get("CONFIG_PREEMPT_COUNT") != "y":
        preemptible = "lab-x86_64-smp-preempt" if kernel.spec.arch == "x86_64" else "lab-i386-smp-preempt"
        return f"this kernel has no preemption to disable; take a preemptible one, such as {preemptible}"
    return None


KIND = MarkersKind()
