# SPDX-License-Identifier: GPL-2.0-only
"""The experiment that measures a cost: its calls, points and budgets, as the user may go on with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import compiled_workload
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import Calls, user_function
from orchestrator.catalog.bpftrace_text import needs_newer
from orchestrator.catalog.data import existing_file, unknown
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import (
    BASELINE,
    CALL_PREFIX,
    IMAGE,
    NEWER_IMAGE,
    PREFIX,
    is_one_liner,
    probe_in_catalogue,
)
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.user_files import find_workload
from orchestrator.cost.event_hits import event_hits, is_event
from orchestrator.cost.existing_places import is_pattern, lacking
from orchestrator.cost.reaching import (
    FoundCall,
    ReachedFunctions,
    call_table,
    known_call,
    made_by,
    reached_functions,
    reaching_system_call,
)
from orchestrator.cost.subjects import ANY_FUNCTION, AttachPlace, Subject
from orchestrator.errors import UsageError
from orchestrator.experiment.cell import MachineSpec
from orchestrator.experiment.fields import ValidationContext, point
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.probes.point import Point
from orchestrator.program import PROGRAM
from orchestrator.results.budgets import Budget, BudgetError
from orchestrator.results.contract import CellRecord

DEFAULT_CPU = "xeon-e5410"
"""The x86_64 CPU model with a price list."""
DEFAULT_KERNEL = "debian-amd64"
_MEMORY = "512M"
_CALLS = {"calls": 1000, "repeats": 2}


def cost_kernel(name: str) -> KernelSpec:
    """The kernel of a name, or of a Linux version: ``6.12`` is Debian's. Raises ConfigError."""
    is_version = re.fullmatch(r"\d+\.\d+(\.\d+)?|newest", name)
    return kernel_spec(f"{DEFAULT_KERNEL}@{name}" if is_version else name)


@dataclass(frozen=True)
class NamedCalls:
    """The calls that the user named: one of the table or a system call, or a ``workload``, and a ``point``.

    A call of the user's passes the point ``hits`` times. Raises UsageError for what does not go together.
    """

    call: str | None = None
    workload: Path | None = None
    point: str | None = None
    hits: int = 1

    def __post_init__(self) -> None:
        if self.call is not None and self.workload is not None:
            raise UsageError("call and workload exclude each other", hint="name one of them")
        if self.hits != 1 and self.workload is None:
            raise UsageError("is of calls of your own only", where="hits", hint="name them: workload")

    def check(self) -> None:
        """Raises UsageError for a call that is not known, a file that is no workload, and what is no point."""
        names = [*call_table(), *system_calls()]
        if self.call is not None and self.call not in names and reaching_system_call(self.call) is None:
            raise UsageError(unknown("call", self.call, names), where="--call", hint=f"all calls: {PROGRAM} list calls")
        if self.workload is not None:
            find_workload(str(existing_file(str(self.workload), (".c",))))
        if self.point is not None:
            try:
                point(self.point)
            except PydanticCustomError as error:
                raise UsageError(error.message(), where="--point") from None


@dataclass(frozen=True)
class CostRequest:
    """A subject, its point, and the benchmark that reaches it on ``kernels``: equal ones share a table.

    One that ``is_anywhere`` is a module whose point is not known: that its functions are entered proves its hits.
    """

    subject: Subject
    point: str | None
    benchmark: Mapping[str, Any]
    kernels: tuple[str, ...] = ()
    is_anywhere: bool = False

    @property
    def hits(self) -> int:
        """How often a call of the benchmark passes the point."""
        hits: int = self.benchmark.get("hits", 1)
        return hits

    @property
    def image(self) -> str | None:
        """The image whose bpftrace takes a one-liner; None for what needs none."""
        row = self.subject.row
        if not is_one_liner(row):
            return None
        return NEWER_IMAGE if needs_newer(row.removeprefix(PREFIX)) else IMAGE

    @property
    def table(self) -> _TableKey:
        return self.point, repr(self.benchmark), self.image, self.kernels

    @cached_property
    def kernel_names(self) -> Sequence[str]:
        """The kernels by their names in records."""
        return [cost_kernel(kernel).name for kernel in self.kernels]

    def has(self, cell: CellRecord) -> bool:
        """Whether the cell is one of the line's."""
        return cell.probe == self.subject.probe and cell.kernel in self.kernel_names


_TableKey = tuple[str | None, str, str | None, tuple[str, ...]]


def on_all(lines: Iterable[CostRequest]) -> list[CostRequest]:
    """The lines, those that are equal but for their kernels as one."""
    alike: dict[tuple[object, ...], list[CostRequest]] = {}
    for line in lines:
        alike.setdefault((line.subject, line.point, repr(line.benchmark)), []).append(line)
    return [
        replace(same[0], kernels=tuple(dict.fromkeys(kernel for request in same for kernel in request.kernels)))
        for same in alike.values()
    ]


@dataclass
class CallFinder:
    """Finds the calls that reach subjects on one kernel; a guest is asked where a function is to be found."""

    context: BuildContext
    kernel: Kernel
    cpu: str
    given: NamedCalls

    def line(self, subject: Subject) -> CostRequest:
        """Raises UsageError for a subject that no known call reaches, and that the user names none for."""
        place = self._place(subject)
        if self.given.workload is not None:
            return self._by_workload(subject, place, self.given.workload)
        if self.given.call is not None:
            return self._by_call(subject, place, self.given.call)
        if place.function is not None and ":" not in place.function:
            entered = known_call(place.function) or self._reached.call(place.function)
            if entered is None:
                raise self._unreached(place.function, "no known call enters it")
            return self._line(subject, entered.function, entered.benchmark)
        if place.system_call is None:
            what = f"which call hits {place.event} is not known" if place.event else "which call hits it is not known"
            hint = f"name a call that does: --call CALL, or --workload FILE.c; all calls: {PROGRAM} list calls"
            raise UsageError(what, where=subject.title, hint=hint)
        call = reaching_system_call(place.system_call)
        if call is None:
            with_zeros = f"make it with zeros as arguments: --call {place.system_call}, or "
            named = with_zeros if place.system_call in system_calls() else ""
            hint = f"{named}write a workload that makes it: --workload FILE.c"
            raise UsageError(f"no known call makes the system call {place.system_call}", where=subject.title, hint=hint)
        return self._line(subject, self._wrapper(call.function), call.benchmark)

    def _place(self, subject: Subject) -> AttachPlace:
        """Where the subject, or the user, says that it is. Raises UsageError for a place that the kernel lacks."""
        place = subject.place
        if place.wrong:
            raise UsageError(place.wrong, where=subject.title)
        lacks = lacking(self.kernel, place)
        if lacks is not None:
            raise UsageError(lacks, where=subject.title)
        if place.is_in_program and (self.given.workload is None or ":" not in (self.given.point or "")):
            hint = "name the program's source and its function: --workload FILE.c --point program:FUNCTION"
            raise UsageError("it is in the program that makes the calls", where=subject.title, hint=hint)
        names_calls = self.given.call is not None or self.given.workload is not None
        if self.given.point is not None:  # an offset does not decide which calls enter the function
            return self._given_point
        if names_calls and probe_in_catalogue(subject.row) is not None:
            return AttachPlace(event=place.event)  # a mechanism is anywhere
        return place

    @cached_property
    def _given_point(self) -> AttachPlace:
        """The point that the user names. Raises UsageError for one that the kernel lacks."""
        assert self.given.point is not None
        named = Point.of(self.given.point)
        place = AttachPlace(function=self.given.point if named.file else named.symbol, offset=named.offset)
        lacks = lacking(self.kernel, place)
        if lacks is not None:
            hint = "of a module without a probe its own functions are measured: leave --point out"
            raise UsageError(lacks, where="--point", hint=hint if self.given.workload is not None else "")
        return place

    def _by_workload(self, subject: Subject, place: AttachPlace, file: Path) -> CostRequest:
        at = place.function or (self._wrapper(place.system_call) if place.system_call else None)
        is_anywhere = at is None and subject.is_module
        if is_anywhere:
            at = ANY_FUNCTION
        if at is None:
            hint = "name a function that each call enters once: --point FUNCTION"
            raise UsageError("where the calls hit it is not known", where=subject.title, hint=hint)
        if is_pattern(at):
            hint = "name the one that the calls enter: --point FUNCTION"
            raise UsageError(f"{at} stands for several functions", where=subject.title, hint=hint)
        given = self.given.hits
        if given == 1 and place.event is not None and is_event(place.event):
            program = compiled_workload(self.context, self.kernel.spec.arch, file)
            given = self._event_hits(place.event, user_function(program.file, calls=1), file.name)
        hits = {} if given == 1 else {"hits": given}
        line = self._line(subject, at, {"name": "workload", "file": str(file), **hits})
        return replace(line, is_anywhere=is_anywhere)

    def _by_call(self, subject: Subject, place: AttachPlace, name: str) -> CostRequest:
        known = reaching_system_call(name)
        made = call_table().get(name) or (None if known is None else known.call)
        if made is None:
            point = place.function or self._wrapper(place.system_call or name)
            return self._line(subject, point, {"name": "syscall", "call": name})
        if place.function is not None and ":" not in place.function:
            entered = known_call(place.function)
            if entered is None or entered.name != made.name:
                its = self._reached.calls.get(made.name, {})
                entered = ReachedFunctions(calls={made.name: its}).call(place.function)
            if entered is None:
                raise self._unreached(place.function, f"the call {made.name} does not enter it")
            return self._line(subject, entered.function, entered.benchmark)
        event = next((called for called in (place.system_call or name, name) if called in made.events), made.events[0])
        hits = 1 if place.function else made.events.count(event)
        # A call of one system call passes the tracepoints of all system calls once.
        is_known = not is_event(place.event or "") or (place.system_call is not None and made.call is not None)
        program = None if is_known else made_by(self.context, self.kernel.spec.arch, made)
        if place.event is not None and program is not None:
            hits = self._event_hits(place.event, program, name)
        call = FoundCall(made, event, hits)
        return self._line(subject, place.function or self._wrapper(event), call.benchmark)

    def _event_hits(self, event: str, calls: Calls, name: str) -> int:
        return event_hits(self.context, self.kernel, self._machine, event, calls).per_call(event, name)

    def _line(self, subject: Subject, point: str, benchmark: Mapping[str, object]) -> CostRequest:
        amounts = {key: amount for key, amount in _CALLS.items() if key not in benchmark}
        return CostRequest(subject, self.given.point or point, {**benchmark, **amounts}, (self.kernel.spec.argument,))

    def _unreached(self, function: str, why: str) -> UsageError:
        alike = self._reached.nearest(function)
        named = f"known calls enter {', '.join(alike)}; or " if alike else ""
        return UsageError(why, where=function, hint=f"{named}name calls of yours: --workload FILE.c")

    def _wrapper(self, system_call: str) -> str:
        return CALL_PREFIX[self.kernel.spec.arch] + system_call

    @cached_property
    def _reached(self) -> ReachedFunctions:
        return reached_functions(self.context, self.kernel, self._machine)

    @property
    def _machine(self) -> MachineSpec:
        names = {"cpu": self.cpu, "memory": _MEMORY}
        return MachineSpec.model_validate(names, context=ValidationContext(qemu_cpu_names))


def check_names(lines: Iterable[CostRequest]) -> None:
    """Raises UsageError for two files of one name: an experiment's row has its file's."""
    named: dict[str, Subject] = {}
    for subject in (line.subject for line in lines):
        other_subject = named.setdefault(subject.probe, subject)
        if other_subject.row != subject.row:
            hint = "a row has its file's name: rename one of them, or compare with a commit: --against REV"
            raise UsageError(f"{other_subject.source} and {subject.source} have one name", hint=hint)


def experiment_text(
    name: str, lines: Sequence[CostRequest], kernels: Sequence[str], cpu: str, budgets: Mapping[str, object]
) -> str:
    """The experiment as YAML: a table for each point with its calls."""
    tables: dict[_TableKey, list[CostRequest]] = {}
    for line in lines:
        tables.setdefault(line.table, []).append(line)
    contents = {_table_name(table, tables): _table(table, kernels) for table in tables.values()}
    whole: dict[str, Any] = {
        "name": name,
        "kernels": list(kernels),
        "machines": [{"cpu": cpu, "memory": _MEMORY}],
        "profile": ["symbols"],
        **(next(iter(contents.values())) if len(contents) == 1 else {"tables": contents}),
        **({"budgets": dict(budgets)} if budgets else {}),
    }
    written: str = yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=110)
    return written


def _table(lines: Sequence[CostRequest], kernels: Sequence[str]) -> Mapping[str, object]:
    first = lines[0]
    return {
        **({} if first.kernels == tuple(kernels) else {"kernels": list(first.kernels)}),
        **({} if first.image is None else {"image": first.image}),
        **({} if first.point is None else {"points": [first.point]}),
        **({"profile": ["symbols", "stacks"]} if first.is_anywhere else {}),
        "probes": [BASELINE, *(line.subject.row for line in lines)],
        "benchmark": dict(first.benchmark),
    }


def _table_name(lines: Sequence[CostRequest], tables: Iterable[_TableKey]) -> str:
    keys = list(tables)
    point, _, image, _ = key = lines[0].table
    suffix = "" if image is None else image.removeprefix("debian-amd64")
    name = re.sub("[^a-z0-9]+", "-", str(point).lower()).strip("-")[:40] + suffix
    alike = [table for table in keys if (table[0], table[2]) == (point, image)]
    return name if len(alike) == 1 else f"{name}-{alike.index(key) + 1}"


_MOST_OF_HIT = 10**9


def budget_of_hit(at_most: str | float) -> Budget:
    """The budget of a hit; a number alone is a limit. Raises UsageError for what is no budget."""
    text = at_most if isinstance(at_most, str) else f"{Decimal(str(at_most)):f}"
    try:
        budget = Budget.of(text)
    except BudgetError as error:
        raise UsageError(str(error), where="--at-most", hint="for example --at-most 300") from None
    if budget.counted is not None and not budget.more:
        budget = Budget(limit=budget.counted)
    if budget.most is not None and budget.most >= _MOST_OF_HIT:
        raise UsageError(f"found {text!r}; the limit of a hit is below 10^9", where="--at-most")
    return budget


def allowed(lines: Sequence[CostRequest], of_hit: Budget) -> Mapping[str, object]:
    """Budgets of calls that give each line's hit this budget."""
    return {
        f"probe={line.subject.probe},kernel={kernel}": {"overhead": str(of_hit.times(line.hits))}
        for line in lines
        for kernel in line.kernel_names
    }
