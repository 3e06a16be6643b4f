# SPDX-License-Identifier: GPL-2.0-only
"""System: the cost of a workload of whole programs with recording probes, with a module, or on another kernel."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.system import system_parameters
from orchestrator.benchmarks.system.measurement import SystemSetup, measure_work, prepare_cell, unsupported_reason
from orchestrator.benchmarks.system.work import SystemCell, SystemTask
from orchestrator.benchmarks.system.workloads import SystemWorkload, published_systems, system_workloads
from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import (
    BASELINE,
    find_module,
    is_path,
    probe_kind,
    probe_name,
    recorder_kinds,
    split_path,
    standard_events,
)
from orchestrator.catalog.user_disks import is_user_disk
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import ConfigError, EvidenceError
from orchestrator.experiment import fields
from orchestrator.experiment.cell import kernel_conflicts, module_parameters, rows_on
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.problems import Problem, mismatch, refused, wrong
from orchestrator.experiment.table import FEWEST_WALL_REPEATS, BenchmarkChoice, MatrixRow, Row, Table
from orchestrator.experiment.table_kind import BenchmarkEntry, Listing
from orchestrator.results import parameters
from orchestrator.results.contract import PER_RUN, UNITS, CellRecord, ReferenceValue
from orchestrator.results.printed_json import Printed
from orchestrator.results.statistics import Resolution
from orchestrator.run.benchmark_kind import BenchmarkKind, Prepared, Session
from orchestrator.run.cell_records import changed


def check_same_work(baseline: CellRecord, record: CellRecord) -> None:
    """Raise EvidenceError where the work differs from the baseline's, so that costs cannot be compared."""
    proof, evidence = baseline.work, record.work
    assert proof is not None
    assert evidence is not None
    if (proof.done, proof.digest) != (evidence.done, evidence.digest):
        raise EvidenceError(
            f"each run made {evidence.done} things of digest {evidence.digest[:16] or 'none'}, the baseline's "
            f"{proof.done} of {proof.digest[:16] or 'none'}: they did not do the same work"
        )


_LONGEST_ARGUMENT = 1000


def _command(value: object) -> object:
    """A list of 1 to 64 texts: a program of the image by its absolute path, and its arguments.

    A text has up to 1000 printable characters.
    """
    good = isinstance(value, list | tuple) and 1 <= len(value) <= 64
    texts = value if isinstance(value, list | tuple) else ()
    if not good or not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts):
        raise mismatch(value, "expected a program of the image and its arguments, as [/usr/bin/gzip, -k, file]")
    if any(len(text) > _LONGEST_ARGUMENT for text in texts):
        raise wrong(f"an argument has at most {_LONGEST_ARGUMENT} characters")
    if not str(texts[0]).startswith("/"):
        raise wrong(f"found {texts[0]!r}; a program of the image is named by its absolute path, as /usr/bin/gzip")
    return tuple(texts)


class SystemBenchmark(BenchmarkChoice):
    """The workload of each boot, which is run once cold and then several times warm."""

    scope: Annotated[str, one_of(lambda: system_workloads().scopes)] | None = None
    """How much a ``kernel-build`` compiles: ``./lab list scopes``."""
    packets: Annotated[int, whole(1, 10_000_000)] | None = None
    """Packets of a run of ``ping-flood``."""
    command: Annotated[tuple[str, ...], BeforeValidator(_command)] | None = None
    """What ``command`` runs; required there."""
    repeats: Annotated[int, whole(1, 50)] | None = None
    """Warm runs in each boot. With clock ``wall`` at least 6."""
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2005
    """Begins the guest's random numbers."""
    aa_boots: Annotated[int, whole(1, 9)] = 1
    """Further boots of the baseline, with other random numbers and another phase of the timer.

    Their difference (A/A) bounds the smallest difference that can be resolved: below it nothing has a verdict.
    """
    events: Entries[Annotated[str, one_of(standard_events)]] | None = None
    """The standard kernel events that probes record; all of ``./lab list events`` by default."""

    @property
    def spec(self) -> SystemWorkload:
        return system_workloads().benchmarks[self.name]

    def conflicts(self) -> Iterator[Problem]:
        owner = {"scope": "kernel-build", "packets": "ping-flood", "command": "command"}
        for key, name in owner.items():
            if getattr(self, key) is not None and self.name != name:
                yield Problem((key,), f"'{self.name}' does not have this key; leave it out")
        if self.name == "command" and self.command is None:
            yield Problem(("command",), "missing; name the program of the image to run, as [/usr/bin/gzip, -k, file]")


def _with_defaults(benchmark: SystemBenchmark, info: ValidationInfo) -> SystemBenchmark:
    usual = system_workloads()
    runs = FEWEST_WALL_REPEATS if info.data.get("clock") == "wall" else usual.runs
    update: dict[str, Any] = {"repeats": benchmark.repeats or runs}
    if benchmark.name == "kernel-build":
        update["scope"] = benchmark.scope or usual.scope
    if benchmark.name == "ping-flood":
        update["packets"] = benchmark.packets or usual.packets
    return benchmark.model_copy(update=update)


def _probe(value: object, info: ValidationInfo) -> object:
    """``none``, a kind of probe that records events, or the path of a module of your own, which is just loaded."""
    name = fields.probe(value, info)
    if isinstance(name, str) and is_path(name):
        path, _ = split_path(name)
        try:
            find_module(path)
        except ConfigError as error:
            raise refused(error) from None
        return name
    if isinstance(name, str) and name not in (BASELINE, *recorder_kinds()):
        allowed = choices_sentence(name, [BASELINE, *recorder_kinds()])
        raise mismatch(value, f"{allowed}; or a path: ./mine.c, a module of your own")
    return name


def _with_room(machines: tuple[MachineSpec, ...], info: ValidationInfo) -> tuple[MachineSpec, ...]:
    benchmark = info.data.get("benchmark")  # None where the benchmark itself is invalid
    if benchmark is None:
        return machines
    memory = f"{benchmark.spec.memory_mib}M"
    return tuple(
        machine if "memory" in machine.model_fields_set else machine.model_copy(update={"memory": memory})
        for machine in machines
    )


class SystemTable(Table):
    """Machines, kernels and probes or modules; every combination runs a whole-system workload.

    All are compared with the first kernel without a probe. Probes record standard kernel events during the runs; a
    user's module is only loaded.
    """

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols",)

    benchmark: Annotated[SystemBenchmark, AfterValidator(_with_defaults)]
    reference: Annotated[str, one_of(published_systems)] | None = None
    machines: Annotated[Entries[MachineSpec], AfterValidator(_with_room)]
    probes: Entries[Annotated[Row, BeforeValidator(_probe)]] = (BASELINE,)
    time_limit: Annotated[int, whole(1, 86_400, "seconds")] | None = None
    """Seconds of the host, in which a processor could be had, without any progress. The amount of work decides it."""
    profile: Entries[Annotated[ProfilePart, one_of(lambda: SystemTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went, and how many were the instrumentation's own."""

    def conflicts(self) -> Iterator[Problem]:
        yield from super().conflicts()
        benchmark, least = self.benchmark, self.benchmark.spec.memory_mib
        for index, machine in enumerate(self.machines):
            if machine.memory_mib < least:
                why = f"'{benchmark.name}' works in memory alone and needs {least}M"
                yield Problem(("machines", index, "memory"), f"found {machine.memory}; {why}")
            for probe, kernel in self.kernel_for.items():
                yield from kernel_conflicts(kernel, machine, ("kernel_for", probe), ("machines",))
        repeats = benchmark.repeats or 0
        if self.clock == "wall" and repeats < FEWEST_WALL_REPEATS:
            why = f"the scatter of runs needs at least {FEWEST_WALL_REPEATS} of them"
            yield Problem(("benchmark", "repeats"), f"found {repeats}; clock 'wall' needs more: {why}")
        archs = {kernel_spec(kernel).arch for kernel in self.all_kernels}
        if len(archs) > 1:
            what = f"found kernels for {' and '.join(sorted(archs))}: they run other programs, and are no comparison"
            yield Problem(("kernels",), f"{what}; give each a table of its own")
        for probe in self.kernel_for:
            if probe == BASELINE or probe not in self.probes:
                yield Problem(("kernel_for", probe), "it is not among the probes that record")
        if self.reference is not None and published_systems()[self.reference].benchmark != benchmark.name:
            published_benchmark = published_systems()[self.reference].benchmark
            yield Problem(
                ("reference",),
                f"found '{self.reference}', which is of '{published_benchmark}', not of '{benchmark.name}'",
            )
        if self.profile and self.clock == "wall":
            what = "clock 'wall' counts no instructions, so nothing could prove a profile"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {what}")
        yield from self._image_conflicts()

    def _image_conflicts(self) -> Iterator[Problem]:
        if self.image is not None and is_user_disk(self.image):
            yield Problem(("image",), "a workload works in memory, where a disk of your own cannot be: name a recipe")
        elif self.image is not None:
            arch = image_recipe(self.image).arch
            for spec in map(kernel_spec, self.all_kernels):
                if spec.arch != arch:
                    what = f"image '{self.image}' is for {arch}, and kernel '{spec.name}' for {spec.arch}"
                    yield Problem(("image",), what)


_SHORTEST_LIMIT = 600
_HOST_SECONDS = 40
"""Host seconds for each guest second. An emulator takes four, with a profile five, and a busy host eight times that."""
_PACKETS_PER_SECOND = 10_000
"""Packets that a kernel answers in a second of guest time, at least; most answer a few times as many."""
_PHASE_US = 3700
"""Microseconds by which the work of each A/A boot begins later than the last one's: no multiple of a tick's period."""


def _cell(
    table: SystemTable, place: MatrixRow, probe: str, compared_with: tuple[str, ...], aa_boot: int = 0
) -> SystemCell:
    benchmark, kind = table.benchmark, probe_kind(probe)
    assert benchmark.repeats is not None
    seconds = system_workloads().scopes[benchmark.scope].seconds if benchmark.scope else 0
    seconds += (benchmark.packets or 0) // _PACKETS_PER_SECOND
    task = SystemTask(
        name=benchmark.name,
        probe=probe,
        scope=benchmark.scope or "",
        packets=benchmark.packets or 0,
        command=benchmark.command or (),
        image=table.image,
        warm=benchmark.repeats,
        seed=(benchmark.seed + aa_boot) % 2**32,
        phase_us=aa_boot * _PHASE_US,
        aa_boot=aa_boot,
        events=benchmark.events or (),
    )
    given: dict[str, str | int] = {
        parameters.SCOPE: task.scope,
        parameters.PACKETS: task.packets,
        parameters.COMMAND: " ".join(task.command)[:200],
        parameters.IMAGE: "" if task.image is None else probe_name(Path(task.image)),
        system_parameters.AGAIN: aa_boot,
    }
    return table.cell(
        place,
        (kind.name, *((f"again{aa_boot}",) if aa_boot else ())),
        probe=kind.name,
        handler="noop" if probe == BASELINE or is_path(probe) else "record",
        metric=PER_RUN,
        repeats=task.warm,
        image=None,  # it is unpacked into memory: the guest has no disk
        time_limit=table.time_limit or _SHORTEST_LIMIT + _HOST_SECONDS * seconds,
        task=task,
        parameters={
            system_parameters.MEMORY_MIB: place.machine.memory_mib,
            **{name: value for name, value in given.items() if value},
            **module_parameters(kind),
        },
        published=_published(table.reference, place.kernel, task),
        compared_with=compared_with,
    )


def _published(reference: str | None, kernel: str, task: SystemTask) -> ReferenceValue | None:
    if reference is None or task.aa_boot:
        return None
    table = published_systems()[reference]
    row = table.row(kernel_spec(kernel).name, probe_kind(task.probe).name)
    if row is None:
        return None
    overhead = table.difference(row) if row.overhead is None else row.overhead
    if overhead is None:
        return None
    return ReferenceValue(table=table.name, value=row.real, overhead=overhead, unit=table.unit)


class ListedScope(Printed):
    """A part of a kernel to compile."""

    name: str
    """Its name in experiments."""
    what_is_built: str
    """The part in words."""
    guest_seconds_a_warm_run: int
    """Seconds of a run with a warm cache, by the guest's clock."""


class ListedEvent(Printed):
    """A standard event of a recorder."""

    name: str
    """Its name in experiments."""
    event: str
    """The event in words."""
    group: str
    """Its group."""
    marker: str
    """The marker that records it."""
    functions: Sequence[str]
    """The functions whose probes record it."""


class SystemKind(BenchmarkKind):
    """Workloads of whole systems, one cell a boot."""

    name = "system"
    table = SystemTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {name: BenchmarkEntry(workload.title) for name, workload in system_workloads().benchmarks.items()}

    def lists(self) -> Mapping[str, Listing]:
        scopes = [(name, scope.title, scope.seconds) for name, scope in system_workloads().scopes.items()]
        known, of_system_calls = standard_events().values(), ["system calls' own"]
        events = [
            (event.name, event.title, event.group, event.marker, event.functions or of_system_calls) for event in known
        ]
        return {
            "scopes": Listing(ListedScope, lambda: scopes),
            "events": Listing(ListedEvent, lambda: events),
        }

    def cells(self, name: str | None, table: SystemTable) -> Iterator[SystemCell]:
        first = table.kernels[0]
        for machine in table.machines:
            home = MatrixRow(name, machine, first)
            baseline = home.id(BASELINE)
            # The ids of A/A boots stay those of earlier versions' results.
            boots = range(1, table.benchmark.aa_boots + 1)
            yield _cell(table, home, BASELINE, ())
            for number in boots:
                yield _cell(table, home, BASELINE, (baseline,), aa_boot=number)
            compared_with = (baseline, *(f"{baseline}/again{number}" for number in boots))
            for kernel, probes in rows_on(table.kernels, table.probes, table.kernel_for).items():
                # Another kernel gets a cell without a probe, too, to separate its cost from that of its probes.
                for probe in probes:
                    if probe != BASELINE or kernel != first:
                        yield _cell(table, MatrixRow(name, machine, kernel), probe, compared_with)

    def boot_key(self, cell: SystemCell) -> Hashable:
        return cell.id

    def describe(self, cell: SystemCell) -> str:
        scope = f"scope {cell.task.scope}, " if cell.task.scope else ""
        packets = f"{cell.task.packets} packets, " if cell.task.packets else ""
        return f"{scope}{packets}a cold run and {cell.repeats} warm ones"

    def refused(self, kernel: Kernel, cells: Sequence[SystemCell]) -> Mapping[str, str | None]:
        return {cell.id: unsupported_reason(kernel, cell) for cell in cells}

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[SystemCell]
    ) -> Mapping[str, Prepared[SystemSetup]]:
        return {cell.id: prepare_cell(context, kernel, cell) for cell in cells}

    def measure(self, session: Session, cells: Sequence[SystemCell]) -> Generator[CellRecord, None, None]:
        for cell in cells:
            yield measure_work(session, cell)

    def compare(self, cell: SystemCell, record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead over the baseline; no verdict where the A/A boots cannot resolve it.

        Raises EvidenceError where its work differs from the baseline's.
        """
        if not cell.compared_with:
            return record
        baseline = next((other_cell for other_cell in other_cells if other_cell.id == cell.compared_with[0]), None)
        if baseline is not None:
            check_same_work(baseline, record)
        resolution = Resolution.of(
            record.samples,
            () if baseline is None else baseline.samples,
            [other_cell.samples for other_cell in other_cells if other_cell is not baseline],
        )
        undecided = None if cell.task.aa_boot else resolution.why_undecided(UNITS[cell.clock])
        facts = dict(record.parameters)
        if resolution.smallest is not None:
            facts[parameters.RESOLVABLE] = resolution.smallest
        if resolution.aa_difference is not None:
            facts[system_parameters.AGAIN_DIFFERENCE] = resolution.aa_difference
        return changed(
            record,
            parameters=facts,
            notes=(*record.notes, *([undecided] if undecided else [])),
            overhead=resolution.overhead,
            interval=resolution.interval,
            verdict="none" if undecided else None,
        )


KIND = SystemKind()
