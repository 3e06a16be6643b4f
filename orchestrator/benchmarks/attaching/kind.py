# SPDX-License-Identifier: GPL-2.0-only
"""Attaching: what it costs to attach to one function, to a thousand, to all, and to detach again."""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.attaching import attach_parameters
from orchestrator.benchmarks.attaching.rows import ALL, BENCHMARK, mechanism_of, mechanisms, row_name
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import EvidenceError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, mismatch
from orchestrator.experiment.table import BenchmarkChoice, RowsTable
from orchestrator.experiment.table_kind import BenchmarkEntry, Listing
from orchestrator.guest.pausing import paused
from orchestrator.profile.counted.counter import Counter, stored
from orchestrator.profile.counted.counts import Region
from orchestrator.profile.counted.timed_work import CountedWork
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence, valid_result
from orchestrator.results.printed_json import Printed
from orchestrator.run.benchmark_kind import BenchmarkKind, Prepared, Ready, Session
from orchestrator.run.cell_records import identity, kernel_facts, without_number
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.script_steps import ScriptStep, of_command, parse_steps
from orchestrator.run.unattended import Ending, UnattendedWork, collect_proof, output_of, unattended_guest
from orchestrator.run.user_modules import smp_note, template_outcome
from orchestrator.steps import step

# What ``images/bpf/attachmany.c`` prints: the steps of each count, checked.

_KIB = 1024
_MEMORY = ("slab", "vmalloc", "percpu")


@dataclass(frozen=True)
class AttachSteps:
    """The steps of one count of functions; ``held`` and ``detach`` are None where attaching failed.

    ``counted`` are the hits that QEMU's plugin counted, where the mechanism counts none.
    """

    bare: ScriptStep
    attach: ScriptStep
    held: ScriptStep | None
    detach: ScriptStep | None
    after: ScriptStep
    counted: int | None = None

    @property
    def error(self) -> int:
        return self.attach.number("error")

    @property
    def failure(self) -> str:
        """How attaching failed. Raises EvidenceError if it did not."""
        if signal := self.attach.number("signal"):
            return f"was ended by signal {signal}, as memory ran out"
        if not self.error:
            raise EvidenceError(f"memory did not run out: {self.asked} functions were attached in what was left")
        return f"failed with {errno.errorcode.get(self.error, str(self.error))}"

    @property
    def asked(self) -> int:
        """The number of functions that the program was told to attach to."""
        return self.attach.number("wanted")

    @property
    def hits_per_call(self) -> int:
        """Raises EvidenceError unless the hits are a multiple of the calls."""
        assert self.held is not None
        calls = self.held.positive("calls")
        if self.hits % calls:
            raise EvidenceError(f"{self.hits} hits in {calls} calls: not each call was hit equally often")
        return self.hits // calls

    @property
    def hits(self) -> int:
        """Raises EvidenceError for none."""
        assert self.held is not None
        if self.counted is None:
            return self.held.positive("hits")
        if self.counted < 1:
            raise EvidenceError(f"QEMU counted {self.counted} hits in {self.held.number('calls')} calls")
        return self.counted

    @property
    def counted_regions(self) -> int:
        """In how many regions, between those of attaching and of detaching, QEMU's plugin counts hits."""
        return 0 if self.held is None else self.held.number("regions")

    @property
    def hit(self) -> float:
        """What one of a call's hits costs, in instructions."""
        assert self.held is not None
        return (self.held.number("ticks") - self.bare.number("ticks")) / self.hits

    def memory(self, when: ScriptStep) -> int:
        """How many bytes more the kernel holds than before."""
        return _KIB * sum(when.number(name) - self.bare.number(name) for name in _MEMORY)

    @property
    def marked(self) -> Sequence[ScriptStep]:
        """The steps of which QEMU's plugin counts all, in order."""
        return [self.attach] if self.detach is None else [self.attach, self.detach]

    def check(self) -> None:
        """Raise EvidenceError unless all was attached, and nothing is afterwards."""
        failed = self.error or self.attach.number("signal")
        for at, cause in ((self.bare, ""), (self.after, f", after attaching {self.failure}" if failed else "")):
            if left := at.number("listed"):
                raise EvidenceError(f"at step '{at}' the kernel lists {left} attached functions{cause}")
        if self.after.number("changed"):
            raise EvidenceError(f"{self.after.number('changed')} bytes of text are not as before attaching")
        if self.held is None or self.detach is None:
            return
        if self.detach.number("error"):
            raise EvidenceError(f"detaching failed with error {self.detach.number('error')}")
        if self.held.number("listed") != self.asked:
            raise EvidenceError(f"the kernel lists {self.held.number('listed')} attached functions, not {self.asked}")
        if self.held.hexadecimal("live") == self.held.hexadecimal("before"):
            raise EvidenceError("the text of the first function is as before attaching")
        if (regions := self.counted_regions) < 0 or regions % 2:
            raise EvidenceError(f"the guest kept {regions} regions of calls: as many of twice the calls as of once")


@dataclass(frozen=True)
class AttachFigures:
    """All counts that the kernel has functions for, 0 for all; ``target`` is the first function, at ``address``."""

    functions: int
    address: int
    target: str
    by_count: Mapping[int, AttachSteps]


def parse_figures(text: str, counts: Sequence[int]) -> AttachFigures:
    """The figures of the counts, with all proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    (functions,) = of_command(steps, "functions", 1)
    attach_steps: dict[int, AttachSteps] = {}
    for count in counts:
        if count > functions.positive("all"):
            continue
        mine = {step.command: step for step in steps if step.arguments == (str(count),)}
        if not {"bare", "attach", "after"} <= mine.keys() or ("while" in mine) != ("detach" in mine):
            raise EvidenceError(f"the steps of {count or 'all'} functions are {', '.join(mine) or 'missing'}")
        steps_of_count = AttachSteps(mine["bare"], mine["attach"], mine.get("while"), mine.get("detach"), mine["after"])
        if steps_of_count.asked != (count or functions.number("all")):
            raise EvidenceError(f"the guest attached to {steps_of_count.asked} functions, not {count or 'all'}")
        steps_of_count.check()
        attach_steps[count] = steps_of_count
    target = "attachmany:places" if functions.number("own") else "__x64_sys_getpgid"
    return AttachFigures(functions.number("all"), int(functions.hexadecimal("target"), 16), target, attach_steps)


# The record of one count of functions: instructions by QEMU's plugin, and what else the guest has found.

_CALLED = {
    # What text_poke_sync() and the like call (kernel/smp.c); with one CPU it calls the function here.
    (attach_parameters.IPI_ROUNDS, attach_parameters.DETACH_IPI_ROUNDS): re.compile(r"on_each_cpu_cond_mask"),
    (attach_parameters.GRACE_PERIODS, attach_parameters.DETACH_GRACE_PERIODS): re.compile(
        r"synchronize_(?:s?rcu|rcu_tasks)(?:_expedited|_rude|_trace)?|rcu_barrier"
    ),
}
"""Functions whose calls are counted, by the parameters of attaching and of detaching."""
_HITS = re.compile(r"klp_ftrace_handler")
"""Entered once per hit; counts the hits of mechanisms without a counter."""


@dataclass(frozen=True)
class AttachCounts:
    """The instructions of attaching and of detaching; ``detach`` is None where attaching failed."""

    steps: AttachSteps
    attach: CountedWork
    detach: CountedWork | None
    facts: Mapping[str, int | str]


def counted_by_count(counter: Counter, figures: AttachFigures) -> Mapping[int, AttachCounts]:
    """What each count executed. Raises EvidenceError unless the clock agrees."""
    regions = iter(counter.regions)
    called = {names: frozenset(counter.symbols.functions_like(of).values()) for names, of in _CALLED.items()}
    counts: dict[int, AttachCounts] = {}
    entered = frozenset(counter.symbols.functions_like(_HITS).values())
    for count, steps in figures.by_count.items():
        own_regions = list(islice(regions, len(steps.marked) + steps.counted_regions))
        if len(own_regions) != len(steps.marked) + steps.counted_regions:
            raise EvidenceError(f"QEMU has kept no instructions of {steps.asked} functions")
        calls, ends = (
            own_regions[1 : 1 + steps.counted_regions],
            own_regions[:1] + own_regions[1 + steps.counted_regions :],
        )
        works = [
            counter.work([region], [step.number("ticks")]) for step, region in zip(steps.marked, ends, strict=True)
        ]
        proved = replace(steps, counted=_hits(steps, calls, entered)) if calls else steps
        facts: dict[str, int | str] = {
            name: _executed(work.together, entries)
            for names, entries in called.items()
            for name, work in zip(names, works, strict=False)
        }
        counts[count] = AttachCounts(proved, works[0], works[1] if len(works) > 1 else None, facts)
    attached = [count for count, attach_steps in figures.by_count.items() if attach_steps.held is not None]
    ascending = sorted(attached, key=lambda count: figures.by_count[count].asked)
    by_function = ((count, _by_function(counter, counts[count].attach)) for count in ascending)
    for (_, before), (more, now) in pairwise(by_function):
        if grows := growing(before, now):
            counts[more] = replace(counts[more], facts={**counts[more].facts, attach_parameters.GROWS: grows})
    return counts


def _hits(steps: AttachSteps, calls: Sequence[Region], entries: frozenset[int]) -> int:
    """The hits of the calls that the guest timed: the least of some batches, less the least of as many half as long.

    Raises EvidenceError unless the plugin counted what the clock did.
    """
    assert steps.held is not None
    half, whole = (min(batches, key=lambda region: region.total) for batches in (calls[::2], calls[1::2]))
    by_clock = steps.held.number("ticks")
    if (total := whole.total - half.total) != by_clock:
        raise EvidenceError(
            f"QEMU counted {total} instructions in {steps.held.number('calls')} calls, the clock {by_clock}"
        )
    return _executed(whole, entries) - _executed(half, entries)


def _executed(region: Region, entries: frozenset[int]) -> int:
    return sum(counts.executed for code, counts in region.counts.items() if code.address in entries)


def _by_function(counter: Counter, work: CountedWork) -> Mapping[str, int]:
    """The instructions of each function of the kernel; of a module that is gone, of BPF and of programs together."""
    executed_by_function: dict[str, int] = defaultdict(int)
    text = range(counter.symbols.address("_stext"), counter.symbols.address("_etext"))
    for code, counts in work.together.counts.items():
        function = counter.symbols.function_at(code.address) if code.address in text else None
        executed_by_function["others" if function is None else function[1]] += counts.executed
    return executed_by_function


def growing(before: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """The functions with most of what is more; None where nothing is."""
    more = {name: executed - before.get(name, 0) for name, executed in now.items()}
    grown = sum(executed for executed in more.values() if executed > 0)
    most = [name for name in sorted(more, key=lambda name: -more[name])[:3] if more[name] > 0]
    return ", ".join(f"{name[:50]} {100 * more[name] / grown:.1f} %" for name in most) or None


def attach_record(
    cell: AttachCell,
    session: Session,
    figures: AttachFigures,
    counted: AttachCounts,
    profile: ProfileEvidence | None,
    ending: Ending,
) -> CellRecord:
    """The record of a count, which is ``failed`` where attaching failed. Raises EvidenceError."""
    steps = counted.steps
    kernel, held = session.artifacts.kernel, steps.held
    if held is None or counted.detach is None:
        wrong = f", of which number {steps.asked // 2 + 1} does not exist," if cell.task.fault == "name" else ""
        reason = (
            f"attaching to {steps.asked} functions{wrong} {steps.failure}; nothing is attached: the kernel lists no "
            "function, and all of its text is as before"
        )
        return without_number(cell, "failed", reason, kernel.release)
    if cell.task.fault != "none":
        raise EvidenceError(f"with fault '{cell.task.fault}' attaching to {steps.asked} functions did not fail")
    assert steps.detach is not None
    value = float(counted.attach.together.total)
    facts = {
        attach_parameters.ATTACHED_FUNCTIONS: steps.asked,
        attach_parameters.DETACH: counted.detach.together.total,
        attach_parameters.ATTACH_NS: steps.attach.number("ns"),
        attach_parameters.DETACH_NS: steps.detach.number("ns"),
        attach_parameters.KEPT_BYTES: steps.memory(held),
        attach_parameters.LEFT_BYTES: steps.memory(steps.after),
        attach_parameters.TEXT_BYTES: held.number("changed"),
        attach_parameters.HIT: steps.hit,
        attach_parameters.HITS_PER_CALL: steps.hits_per_call,
    }
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **kernel_facts(kernel), **counted.facts, **facts},
            status="ok",
            notes=session.setup(cell).notes,
            samples=(value,),
            value=value,
            evidence=Evidence(
                mechanism=cell.task.mechanism,
                probe_bytes=held.hexadecimal("live"),
                hits=steps.hits,
                int3=None,
                calls=held.number("calls"),
                hits_per_call=steps.hits_per_call,
                restored=not steps.after.number("changed"),
                clocksource=CLOCKSOURCE,
                original_bytes=held.hexadecimal("before"),
                address=f"{figures.address:#x}",
                symbol=figures.target,
                flag="",
                taint=ending.taint,
                batches=1,
                disturbed=0,
            ),
            text=ending.text,
            profile=profile,
        )


MOST_FUNCTIONS = 100_000
Fault = Literal["none", "name", "memory"]
_FEWEST_WITH_FAULT = 2
_PROGRAM = "attachmany"


def _counts(value: object) -> object:
    """A list of up to 20 different numbers of functions up to 100,000, ``all`` for as many as the kernel has."""
    known = value if isinstance(value, list | tuple) else ()
    numbers = [number for number in known if isinstance(number, int) and not isinstance(number, bool)]
    good = 1 <= len(known) <= 20 and all(1 <= number <= MOST_FUNCTIONS for number in numbers)
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
            yield Problem(("counts",), what, conflicting=("fault",))


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


class ListedMechanism(Printed):
    """A mechanism that attaches to many functions."""

    name: str
    """Its name in experiments."""
    what: str
    """The mechanism in words."""
    needs: str
    """The kernel's options that it needs."""


class AttachingKind(BenchmarkKind):
    """Attaching and detaching; one guest measures all counts of a mechanism."""

    name = "attaching"
    table = AttachTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {BENCHMARK: BenchmarkEntry("attaching to many functions (counts; probes attach.MECHANISM)")}

    def rows(self) -> Mapping[str, str]:
        return dict.fromkeys(_rows(), BENCHMARK)

    def lists(self) -> Mapping[str, Listing]:
        rows = [
            (row_name(name), mechanism.title, ", ".join(mechanism.needs)) for name, mechanism in mechanisms().items()
        ]
        return {BENCHMARK: Listing(ListedMechanism, lambda: rows)}

    def cells(self, name: str | None, table: AttachTable) -> Generator[AttachCell, None, None]:
        benchmark = table.benchmark
        fault: dict[str, str] = {} if benchmark.fault == "none" else {attach_parameters.FAULT: benchmark.fault}
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
                    parameters={attach_parameters.FUNCTIONS: str(count), parameters.SEED: benchmark.seed, **fault},
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
        if template := mechanisms()[first.task.mechanism].module:
            built = template_outcome(context, kernel, template, first.smp)
        if isinstance(built, Ready):
            built = replace(built, keys={_PROGRAM: program.parent.name}, needs_counter=True)
        return dict.fromkeys((cell.id for cell in cells), built)

    def measure(self, session: Session, cells: Sequence[AttachCell]) -> Generator[CellRecord, None, None]:
        """The records of all counts of one mechanism. Raises EvidenceError, GuestError for all cells."""
        for cell in cells:
            session.begin(cell)
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
        work: UnattendedWork[AttachFigures] = UnattendedWork(
            "attach", settings, files, partial(parse_figures, counts=counts)
        )
        mechanism = mechanisms()[first.task.mechanism]
        title = mechanism.title
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
            ending = collect_proof(finished, 0 if mechanism.taint is None else 1 << mechanism.taint)
        for cell in cells:
            if cell.task.count not in figures.by_count:
                reason = f"this kernel has {figures.functions} functions for {title}"
                yield without_number(cell, "unsupported", reason, kernel.release)
                continue
            record = attach_record(cell, session, figures, counted[cell.task.count], profiles.get(cell.id), ending)
            if record.status == "failed":
                session.guest_still_sound.add(cell.id)  # it is proved that nothing is attached
            yield record


KIND = AttachingKind()
