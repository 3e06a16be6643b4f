# SPDX-License-Identifier: GPL-2.0-only
"""The calls that reach a subject on one kernel: those that the user names, or known ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from pydantic_core import PydanticCustomError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.image_files import is_library_name
from orchestrator.artifacts.kernel_events import events
from orchestrator.artifacts.module_files import missing_module_reason
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK
from orchestrator.benchmarks.calls.call_benchmark import checked_run
from orchestrator.benchmarks.calls.call_programs import Calls, user_function
from orchestrator.catalog.data import existing_file, unknown
from orchestrator.catalog.image_recipes import DEFAULT_IMAGE
from orchestrator.catalog.probes import CALL_PREFIX, TOGETHER, is_one_liner, probe_in_catalogue
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.tools import ToolCommand
from orchestrator.catalog.user_files import find_workload
from orchestrator.cost.call_table import (
    FoundCall,
    ReachedNames,
    TableCall,
    call_table,
    called_by,
    known_call,
    reaching_system_call,
)
from orchestrator.cost.cost_machine import cost_machine
from orchestrator.cost.counted_table import CountedTable, TablePart, counted_part, hit_tracepoints, made_by, table_parts
from orchestrator.cost.event_hits import event_hits, is_event
from orchestrator.cost.existing_places import is_pattern, lacking
from orchestrator.cost.line import CostLine
from orchestrator.cost.subjects import ANY_FUNCTION, AttachPlace, Subject
from orchestrator.cost.tool_calls import tool_calls
from orchestrator.cost.unreached import UnreachedSubject, without_function, without_tracepoint
from orchestrator.cost.user_places import UserPlaces, linked
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.experiment.fields import point
from orchestrator.plain_text import shown
from orchestrator.probes.point import PROGRAM as PROGRAM_FILE
from orchestrator.probes.point import Point
from orchestrator.program import PROGRAM

_SHOWN = 6
_CALLS = {"calls": 1000, "repeats": 2}
_RUNS = 3
"""Runs of a command: each proves its hits by itself."""
_CALLS_HINT = f"name a call that does: --call CALL, or --workload FILE.c; all calls: {PROGRAM} list calls"


@dataclass(frozen=True)
class NamedCalls:
    """The calls that the user named: one of the table or a system call, or a ``workload``, and a ``point``.

    A call of the user's passes the point ``hits`` times. ``run`` is a command of an image in place of calls.
    Raises UsageError for what does not go together.
    """

    call: str | None = None
    workload: Path | None = None
    point: str | None = None
    hits: int = 1
    run: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in ("call", "workload", "run") if getattr(self, name) is not None]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} exclude each other", hint="name one of them")
        if self.hits != 1 and self.workload is None:
            raise UsageError("is of calls of your own only", where="hits", hint="name them: workload")

    @property
    def names_calls(self) -> bool:
        return self.call is not None or self.workload is not None

    def check(self) -> None:
        """Raises UsageError for a call that is not known, a file that is no workload, and what is no point."""
        names = [*call_table(), *system_calls()]
        if self.call is not None and self.call not in names and reaching_system_call(self.call) is None:
            hint = f"name a call of the table ({PROGRAM} list calls), or a system call"
            raise UsageError(unknown("call", self.call, names), where="--call", hint=hint)
        if self.workload is not None:
            find_workload(str(existing_file(str(self.workload), (".c",))))
        if self.run is not None:
            try:
                checked_run(self.run)
            except PydanticCustomError as error:
                raise UsageError(error.message(), where="--run") from None
        if self.point is not None:
            try:
                point(self.point)
            except PydanticCustomError as error:
                raise UsageError(error.message(), where="--point") from None


def _user_point(text: str) -> AttachPlace | None:
    """A point that the user names; None for one of the kernel or a module of its own."""
    file, _, symbol = text.partition(":")
    is_in_file = file == PROGRAM_FILE or file.startswith("/") or is_library_name(file)
    return AttachPlace(is_in_program=True, file=file, symbol=symbol) if symbol and is_in_file else None


@dataclass
class CallFinder:
    """Finds the calls that reach subjects on one kernel; a guest is asked where a function is to be found."""

    context: BuildContext
    kernel: Kernel
    cpu: str
    given: NamedCalls
    image: str | None = None
    _counted: list[CountedTable] = field(default_factory=list)
    unreached: list[UnreachedSubject] = field(default_factory=list)
    """Programs that are measured together with others, and that no call reaches."""

    def lines(self, subject: Subject) -> Sequence[CostLine]:
        """The lines of a subject: of what is measured whole for each call that reaches it. Raises as ``line``."""
        return [replace(line, named_image=self.image) for line in self._lines(subject)]

    def _lines(self, subject: Subject) -> Sequence[CostLine]:
        command = subject.command
        if subject.programs:
            return self._together_lines(subject)
        if command is None:
            return [self.line(subject)]
        if subject.place == AttachPlace():
            return self._tool_lines(subject, command)
        line = self.line(subject)  # of a script with one place: a call is a hit, however often it runs
        return [replace(line, benchmark={key: part for key, part in line.benchmark.items() if key != "hits"})]

    def _together_lines(self, subject: Subject) -> Sequence[CostLine]:
        """Of the named calls, or those that reach the programs, the one that reaches most of them first."""
        if self.given.run is not None:
            what = "programs that are attached together are counted in calls, and not in runs of a command"
            raise UsageError(what, where=subject.title, hint="name calls: --call CALL, or --workload FILE.c")
        self._check_attachable(subject)
        if self.given.names_calls:
            return self._of_named_calls(subject)
        calls = Counter[str]()
        unreached: list[UnreachedSubject] = []
        for program in subject.programs:
            try:
                calls[called_by(self.line(program).benchmark)] += 1
            except UsageError as error:
                unreached.append(UnreachedSubject(program, self.kernel.spec, error))
        if not calls:
            raise unreached[0]
        self.unreached += unreached
        return [self._of_table_call(subject, call_table()[name]) for name, _ in calls.most_common()]

    def _check_attachable(self, subject: Subject) -> None:
        """Raise UsageError for programs whose places the kernel lacks: nothing of the others is measured, then."""
        places = {program.name: program.place for program in subject.programs}
        reasons = {name: place.wrong or lacking(self.kernel, place) for name, place in places.items()}
        wrong = [f"{name}: {reason}" for name, reason in reasons.items() if reason]
        if wrong:
            attachable = ",".join(name for name, reason in reasons.items() if not reason)
            others = f"measure the others: '{subject.source} {TOGETHER}={attachable}', or " if attachable else ""
            hint = f'{others}mark those that the tool may do without: SEC("?...")'
            raise UsageError("; ".join(wrong), where=subject.title, hint=hint)

    def _of_named_calls(self, subject: Subject) -> Sequence[CostLine]:
        if self.given.workload is not None:
            file = {"name": "workload", "file": str(self.given.workload)}
            return [self._line(subject, self.given.point or ANY_FUNCTION, file)]
        assert self.given.call is not None
        made = self._named_call(subject, self.given.call)
        if made is None:
            return [self._of_system_call(subject, self.given.call)]
        return [self._of_table_call(subject, made)]

    def _tool_lines(self, subject: Subject, command: ToolCommand) -> Sequence[CostLine]:
        """Of the named calls, or those that reach most of the tool's programs."""
        if self.given.names_calls:
            return self._of_named_calls(subject)
        image = replace(CostLine(subject, None, {}), named_image=self.image).image
        try:
            calls = tool_calls(self.context, self.kernel, cost_machine(self.cpu), command, image)
        except EvidenceError as error:
            raise UsageError(error.what, where=subject.title, detail=error.detail, hint=error.hint) from None
        if not calls.reaching:
            places = ", ".join(shown([*filter(None, dict.fromkeys(calls.programs))], _SHOWN, "{} more"))
            what = f"no known call runs a program of it; the kernel says that they are at {places or 'no known place'}"
            failed = shown([f"{name}: {why}" for name, why in calls.failures.items()], _SHOWN, "{} more calls failed")
            hint = "name calls of yours: --workload FILE.c"
            raise UsageError(what, where=subject.title, detail=failed, hint=hint)
        return [self._of_table_call(subject, call_table()[name]) for name in calls.reaching]

    def _named_call(self, subject: Subject, name: str) -> TableCall | None:
        """The call of the table that the user names, by its name or that of the system call that it makes.

        None where it has none of them. Raises UsageError for one whose modules the kernel lacks.
        """
        known = reaching_system_call(name)
        made = call_table().get(name) or (None if known is None else known.call)
        lacks = None if made is None else missing_module_reason(self.kernel, made.modules)
        if made is None or lacks is None:
            return made
        what = f"the call {made.name} needs {' and '.join(made.modules)}: {lacks}"
        raise UsageError(what, where=subject.title, hint="name another call: --call, or another kernel: --kernels")

    def _of_table_call(self, subject: Subject, made: TableCall) -> CostLine:
        point = self._wrapper(made.events[0]) if made.events[0] else ANY_FUNCTION
        return self._line(subject, point, made.benchmark)

    def _of_system_call(self, subject: Subject, name: str) -> CostLine:
        return self._line(subject, self._wrapper(name), {"name": "syscall", "call": name})

    def line(self, subject: Subject) -> CostLine:
        """Raises UsageError for a subject that no known call reaches, and that the user names none for."""
        place = self._place(subject)
        if place.is_in_program:
            return self._in_user_space(subject, place)
        if self.given.run is not None:
            what = "it is in the kernel, and what a command adds there is not counted by hits"
            raise UsageError(what, where=subject.title, hint=_CALLS_HINT)
        if self.given.workload is not None:
            return self._by_workload(subject, place, self.given.workload)
        if self.given.call is not None:
            return self._by_call(subject, place, self.given.call)
        if place.function is not None and ":" not in place.function:
            entered = known_call(place.function) or self._entering(subject, place.function)
            if entered is None:
                raise self._unreached(place.function, "no known call enters it")
            return self._line(subject, entered.name_reached, entered.benchmark)
        if place.system_call is None and place.event is not None:
            return self._by_event(subject, place.event)
        if place.system_call is None:
            raise UsageError("which call hits it is not known", where=subject.title, hint=_CALLS_HINT)
        call = reaching_system_call(place.system_call)
        if call is None:
            with_zeros = f"make it with zeros as arguments: --call {place.system_call}, or "
            named = with_zeros if place.system_call in system_calls() else ""
            hint = f"{named}write a workload that makes it: --workload FILE.c"
            raise UsageError(f"no known call makes the system call {place.system_call}", where=subject.title, hint=hint)
        return self._line(subject, self._wrapper(call.name_reached), call.benchmark)

    def _by_event(self, subject: Subject, event: str) -> CostLine:
        hit = self._fewest(lambda table: self._tracepoints(table, event).call(event.rpartition(":")[2]))
        if hit is None:
            raise self._unhit(event, "no known call hits it")
        return self._line(subject, self._wrapper(hit.call.events[0]), hit.benchmark)

    def _tracepoints(self, table: CountedTable, event: str) -> ReachedNames:
        """Which calls hit the tracepoints of an event, ``SYSTEM:NAME`` or ``NAME``, or of a pattern of events."""
        tracepoints, code = table.tracepoints, self.kernel.code
        if ":" not in event or code is None:
            return tracepoints
        system, _, name = event.partition(":")
        of_kernel = events(code)
        if system not in of_kernel.values() and not is_pattern(event):  # a module's
            return tracepoints.among([name])
        return tracepoints.among([known.partition(":")[2] for known in of_kernel if fnmatchcase(known, event)])

    def _entering(self, subject: Subject, function: str) -> FoundCall | None:
        """The call to enter a function with."""
        return self._fewest(lambda table: self._functions(table, subject).call(function))

    def _fewest(self, find: Callable[[CountedTable], FoundCall | None]) -> FoundCall | None:
        """The first call of the table with the lowest rank; calls that need modules only where no others have a hit.

        Parts of the table behind one with a single hit, and no other process, are not counted. Raises UsageError where
        each call has several of a pattern.
        """
        fewest: FoundCall | None = None
        several: UsageError | None = None
        for part, table in self._parts():
            if part.modules and fewest is not None:
                break
            try:
                call = find(table)
            except UsageError as error:
                several = several or error
                continue
            if call is not None and (fewest is None or call.rank < fewest.rank):
                fewest = call
            if fewest is not None and fewest.rank == (1, False):
                break
        if fewest is None and several is not None:
            raise several
        return fewest

    def _parts(self) -> Iterator[tuple[TablePart, CountedTable]]:
        """The parts of the table of calls with what they reach; each is counted when it is asked for."""
        for number, part in enumerate(table_parts(self.kernel)):
            if number == len(self._counted):
                self._counted.append(counted_part(self.context, self.kernel, cost_machine(self.cpu), part))
            yield part, self._counted[number]

    def _table_of(self, call: TableCall) -> CountedTable:
        """What the calls reach that are counted together with this one, which the kernel can make."""
        return next(table for part, table in self._parts() if call in part.calls)

    def _place(self, subject: Subject) -> AttachPlace:
        """Where the subject, or the user, says that it is. Raises UsageError for a place that the kernel lacks."""
        place = subject.place
        if place.wrong:
            raise UsageError(place.wrong, where=subject.title)
        lacks = lacking(self.kernel, place)
        if lacks is not None:
            raise UsageError(lacks, where=subject.title)
        in_user_space = None if self.given.point is None else _user_point(self.given.point)
        if in_user_space is not None:
            return in_user_space
        if place.is_in_program:
            return place if self.given.point is None else AttachPlace(is_in_program=True)
        if self.given.point is not None:  # an offset does not decide which calls enter the function
            return self._given_point
        if self.given.names_calls and probe_in_catalogue(subject.row) is not None:
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
            hint = "of a module without a probe its own functions are measured: leave out --point"
            raise UsageError(lacks, where="--point", hint=hint if self.given.workload is not None else "")
        return place

    def _in_user_space(self, subject: Subject, place: AttachPlace) -> CostLine:
        image = replace(CostLine(subject, None, {}), named_image=self.image).image or self.image or DEFAULT_IMAGE
        places = UserPlaces(self.context, self.kernel, image)
        if self.given.run is not None:
            there = places.in_command(subject, place)
            benchmark: Mapping[str, object] = {"name": COUNTED_BENCHMARK, "run": self.given.run, "repeats": _RUNS}
            return CostLine(subject, there.point, benchmark, (self.kernel.spec.argument,), in_image=there.image)
        if self.given.workload is None and place.symbol is not None:
            hint = "name calls that pass it: --workload FILE.c, or a command of the image: --run 'COMMAND'"
            what = "it is in user space, and which program passes it is not known"
            raise UsageError(what, where=subject.title, hint=hint)
        there = places.in_workload(subject, place)  # which says what a place without a name needs
        hits = {} if self.given.hits == 1 else {"hits": self.given.hits}
        benchmark = {"name": "workload", "file": str(self.given.workload), **linked(there.libraries), **hits}
        line = self._line(subject, there.point, benchmark)
        return replace(line, point=there.point, in_image=there.image)

    def _by_workload(self, subject: Subject, place: AttachPlace, file: Path) -> CostLine:
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

    def _by_call(self, subject: Subject, place: AttachPlace, name: str) -> CostLine:
        made = self._named_call(subject, name)
        if made is None:
            point = place.function or self._wrapper(place.system_call or name)
            return self._line(subject, point, {"name": "syscall", "call": name})
        if place.function is not None and ":" not in place.function:
            entered = known_call(place.function)
            if entered is None or entered.name != made.name:
                entered = self._functions(self._table_of(made), subject).by(made.name).call(place.function)
            if entered is None:
                raise self._unreached(place.function, f"the call {made.name} does not enter it")
            return self._line(subject, entered.name_reached, entered.benchmark)
        event = next((called for called in (place.system_call or name, name) if called in made.events), made.events[0])
        hits = 1 if place.function else made.events.count(event)
        # A call of one system call passes the tracepoints of all system calls once.
        if place.event is not None and (place.system_call is None or made.call is None):
            hits = self._hits_by(made, place.event, name)
        call = FoundCall(made, event, hits)
        return self._line(subject, place.function or self._wrapper(event), call.benchmark)

    def _hits_by(self, call: TableCall, event: str, name: str) -> int:
        """How often a call of the table, which the user calls ``name``, hits an event; 1 where it is not known.

        Raises UsageError for one that does not hit it, or not equally often.
        """
        if is_event(event):
            program = made_by(self.context, self.kernel.spec.arch, call)
            return 1 if program is None else self._event_hits(event, program, name, call.modules)
        hit = self._tracepoints(self._table_of(call), event).by(call.name).call(event.rpartition(":")[2])
        return 1 if hit is None else hit.hits

    def _event_hits(self, event: str, calls: Calls, name: str, modules: Sequence[str] = ()) -> int:
        machine = cost_machine(self.cpu)
        try:
            return event_hits(self.context, self.kernel, machine, event, calls, modules).per_call(event, name)
        except UsageError:
            # Other tasks that hit it for the calls hit it for others, too: QEMU tells what is within the calls.
            hits = hit_tracepoints(self.context, self.kernel, machine, calls, modules).get(event.rpartition(":")[2])
            if hits is None:
                raise
            return hits

    def _functions(self, table: CountedTable, subject: Subject) -> ReachedNames:
        """What calls enter; for other probes than BPF programs, whose runs QEMU counts, in the calls' process alone."""
        has_programs = bool(subject.name) or is_one_liner(subject.row)
        return table.functions if has_programs else table.functions_of_one_process

    def _line(self, subject: Subject, point: str, benchmark: Mapping[str, object]) -> CostLine:
        amounts = {key: amount for key, amount in _CALLS.items() if key not in benchmark}
        kernels = (self.kernel.spec.argument,)
        every = {**benchmark, **amounts}
        return CostLine(subject, self.given.point or point, every, kernels)

    def _unreached(self, function: str, why: str) -> UsageError:
        alike = self._nearest(function, lambda table: table.functions)
        named = f"known calls enter {', '.join(alike)}; or " if alike else ""
        hint = f"{named}name calls of yours: --workload FILE.c"
        return UsageError(without_function(function, why), where=function, hint=hint)

    def _unhit(self, event: str, why: str) -> UsageError:
        alike = self._nearest(event.rpartition(":")[2], lambda table: table.tracepoints)
        named = f"known calls hit {', '.join(alike)}; or " if alike else ""
        hint = f"{named}name calls of yours: --workload FILE.c"
        return UsageError(without_tracepoint(event, why), where=event, hint=hint)

    def _nearest(self, name: str, names: Callable[[CountedTable], ReachedNames]) -> Sequence[str]:
        """Names like this one that calls reach, of the parts of the table that were counted."""
        parts = (names(table).calls for table in self._counted)
        return ReachedNames({call: reached for part in parts for call, reached in part.items()}).nearest(name)

    def _wrapper(self, system_call: str) -> str:
        return CALL_PREFIX[self.kernel.spec.arch] + system_call
