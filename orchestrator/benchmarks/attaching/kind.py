# SPDX-License-Identifier: GPL-2.0-only
"""Attaching: what it costs to attach to one function, to a thousand, to all, and to detach again."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import bpf_tool
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.attaching.figures import AttachFigures, parse_figures
from orchestrator.benchmarks.attaching.measurement import attach_record, counted_by_count
from orchestrator.benchmarks.attaching.rows import ALL, BENCHMARK, mechanism_of, mechanisms, row_name
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, mismatch
from orchestrator.experiment.table import BenchmarkChoice, BenchmarkEntry, Listing, RowsTable
from orchestrator.guest.guest import paused
from orchestrator.profile.profiled import Counter, stored
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import FAULT, FUNCTIONS, SEED
from orchestrator.run.boot import (
    BenchmarkKind,
    Prepared,
    Ready,
    Session,
    smp_note,
    template_outcome,
    without_number,
)
from orchestrator.run.unattended import Work, collect_proof, output_of, unattended_guest
from orchestrator.steps import step

MOST_FUNCTIONS = 100_000
Fault = Literal["none", "name", "memory"]
_FEWEST_WITH_FAULT = 2
_PROGRAM = "attachmany"


def _counts(value: object) -> object:
    """A list of up to 20 different numbers of functions up to 100,000, ``all`` for as many as the kernel has."""
    known = value if isinstance(value, list | tuple) else ()
    numbers = [one for one in known if isinstance(one, int) and not isinstance(one, bool)]
    good = 1 <= len(known) <= 20 and all(1 <= one <= MOST_FUNCTIONS for one in numbers)
    if not good or len(numbers) + known.count(ALL) != len(known) or len(set(known)) != len(known):
        raise mismatch(value, f"expected up to 20 different numbers up to {MOST_FUNCTIONS}, as [1, 1000, {ALL}]")
    return tuple(known)


class AttachBenchmark(BenchmarkChoice):
    """Numbers of functions, and their choice."""

    counts: Annotated[tuple[int | Literal["all"], ...], BeforeValidator(_counts)] = (1, 10, 100, 1000)
    """Numbers of functions, one after the other in one guest; ``all`` is as many as the kernel has."""
    seed: Annotated[int, whole(0, 100_000_000)] = 2026
    """Chooses the functions. Of two counts the larger has all functions of the smaller."""
    fault: Annotated[Fault, one_of(lambda: get_args(Fault))] = "none"
    """What goes wrong in the middle: ``name``, one of the functions does not exist; ``memory``, there is too little.

    The cell fails, with the kernel's error and the proof that nothing is attached. One count of at least 2.
    """

    def conflicts(self) -> Iterator[Problem]:
        first = self.counts[0]
        few = isinstance(first, int) and first < _FEWEST_WITH_FAULT
        if self.fault != "none" and (len(self.counts) > 1 or few):
            what = f"with a fault there is one count of at least {_FEWEST_WITH_FAULT}"
            yield Problem(("counts",), what, other=("fault",))


def _rows() -> list[str]:
    return [row_name(name) for name in mechanisms()]


class AttachTable(RowsTable):
    """Machines, kernels, mechanisms and numbers of functions; every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols",)

    benchmark: AttachBenchmark
    probes: Entries[Annotated[str, one_of(_rows)]] = tuple(_rows())
    """``attach.MECHANISM``, of ``./lab list attach``; all by default."""
    profile: Entries[Annotated[ProfilePart, one_of(lambda: AttachTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where the instructions of attaching went."""

    def conflicts(self) -> Iterator[Problem]:
        if self.image is not None:
            why = f"benchmark '{BENCHMARK}' runs in the initramfs, before an image is mounted"
            yield Problem(("image",), f"{why}; leave it out")
        yield from super().conflicts()


@dataclass(frozen=True)
class AttachTask:
    """Attach to ``count`` functions, which ``seed`` chooses, by a mechanism; ``all`` is 0."""

    mechanism: str
    count: int
    seed: int
    fault: Fault


AttachCell = Cell[AttachTask]


class AttachingKind(BenchmarkKind):
    """Attaching and detaching; one guest measures all counts of a mechanism."""

    name = "attaching"
    table = AttachTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {BENCHMARK: BenchmarkEntry("attaching to many functions (counts; probes attach.MECHANISM)")}

    def rows(self) -> Mapping[str, str]:
        return dict.fromkeys(_rows(), BENCHMARK)

    def lists(self) -> Mapping[str, Listing]:
        rows = [(row_name(name), one.title, ", ".join(one.needs)) for name, one in mechanisms().items()]
        return {BENCHMARK: Listing(("name", "what", "needs"), lambda: rows)}

    def cells(self, name: str | None, table: AttachTable) -> Generator[AttachCell, None, None]:
        benchmark = table.benchmark
        fault: dict[str, str] = {} if benchmark.fault == "none" else {FAULT: benchmark.fault}
        for place, rows in table.places(name):
            for row, count in product(rows, benchmark.counts):
                if row == BASELINE:  # each cell has its own
                    continue
                number = 0 if count == ALL else int(count)
                yield table.cell(
                    place,
                    (row, str(count), *fault.values()),
                    probe=row,
                    handler="count",
                    metric="cost of attaching",
                    task=AttachTask(mechanism_of(row), number, benchmark.seed, benchmark.fault),
                    parameters={FUNCTIONS: str(count), SEED: benchmark.seed, **fault},
                )

    def boot_key(self, cell: AttachCell) -> Hashable:
        return cell.table, cell.probe, cell.task.seed, cell.task.fault

    def describe(self, cell: AttachCell) -> str:
        return f"{cell.task.count or ALL} functions, seed {cell.task.seed}"

    def refused(self, kernel: Kernel, cells: Sequence[AttachCell]) -> Mapping[str, str | None]:
        def reason(cell: AttachCell) -> str | None:
            mechanism = mechanisms()[cell.task.mechanism]
            needs = ["CONFIG_KALLSYMS", "CONFIG_PROC_KCORE", "CONFIG_DYNAMIC_FTRACE", *mechanism.needs]
            lacking = next((option for option in needs if kernel.config.get(option) != "y"), None)
            if kernel.spec.arch != "x86_64":
                return "attaching to many functions is measured on x86_64 alone"
            if cell.task.fault == "memory" and mechanism.outlives:
                return f"{mechanism.title}: what is attached outlives a process that the kernel kills"
            if lacking is not None:
                return without_option(lacking, needs, kernel.spec.arch)
            return mechanism.lacking_in(kernel.release, kernel.spec.arch)

        return {cell.id: reason(cell) for cell in cells}

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[AttachCell]
    ) -> Mapping[str, Prepared[Module | None]]:
        """The module that attaches, None for a mechanism without one."""
        first, program = cells[0], bpf_tool(context, kernel.spec.arch, _PROGRAM)
        built: Prepared[Module | None] = Ready(None, notes=smp_note(kernel, first.smp))
        if mechanisms()[first.task.mechanism].module:
            built = template_outcome(context, kernel, "attach", first.smp)
        if isinstance(built, Ready):
            built = replace(built, keys={_PROGRAM: program.parent.name}, needs_counter=True)
        return dict.fromkeys((cell.id for cell in cells), built)

    def measure(self, session: Session, cells: Sequence[AttachCell]) -> Generator[CellRecord, None, None]:
        """The records of all counts of one mechanism. Raises EvidenceError, GuestError for all cells."""
        for one in cells:
            session.begin(one)
        first, kernel, counts = cells[0], session.artifacts.kernel, [cell.task.count for cell in cells]
        module: Module | None = session.setup(first).setup
        settings: dict[str, int | str] = {
            "mechanism": first.task.mechanism,
            "seed": first.task.seed,
            "fault": first.task.fault,
            "counts": " ".join(map(str, counts)),
            "module": "" if module is None else module.name,
        }
        program = bpf_tool(session.context, kernel.spec.arch, _PROGRAM)
        files: dict[str, bytes | Path] = {_PROGRAM: program, "seed": first.task.seed.to_bytes(64, "little")}
        if module is not None:
            files[f"{module.name}.ko"] = module.file
        work: Work[AttachFigures] = Work("attach", settings, files, partial(parse_figures, counts=counts))
        title = mechanisms()[first.task.mechanism].title
        with unattended_guest(session, work, title, first.time_limit) as finished:
            figures = work.read(output_of(finished.guest))
            counter = Counter.after_work(finished.guest, module)
            with paused(finished.guest), step(f"count the instructions of {title}"):
                counted = counted_by_count(counter, figures)
                profiles = {
                    cell.id: stored(profile, file, counted[count].attach)
                    for cell in cells
                    if (count := cell.task.count) in counted and (file := session.profile_file(cell)) is not None
                    for profile in [counter.profile_work(counted[count].attach, cell.id, calls=1, unit="run")]
                }
            ending = collect_proof(finished)
        for one in cells:
            if one.task.count not in figures.by_count:
                reason = f"this kernel has {figures.functions} functions for {title}"
                yield without_number(one, "unsupported", reason, kernel.release)
                continue
            record = attach_record(one, session, figures, counted[one.task.count], profiles.get(one.id), ending)
            if record.status == "failed":
                session.guest_still_sound.add(one.id)  # it is proved that nothing is attached
            yield record


KIND = AttachingKind()
