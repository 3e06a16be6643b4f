# SPDX-License-Identifier: GPL-2.0-only
"""Budgets: a test's counts of instructions, checked against the committed numbers beside it.

The file of budgets beside a test file: instructions by test, label, kernel and CPU.

    test_the_call[pentium4]:
      getppid:
        debian-686 6.1.0-41-686, pentium4: 422
      sh:
        debian-686 6.1.0-41-686, pentium4: 1234567 +2%
      getpid:
        debian-686 6.1.0-41-686, pentium4: <=300
      getppid:
        debian-686 6.1.0-41-686, pentium4:
          instructions: 369
          symbols:
            callbench: 13
            entry_SYSENTER_32: 60

A plain number is the count, and a hard budget: one instruction more is too many. With an increase it is soft. ``<=N``
is a user's own limit, which is never rewritten. The symbols, which are optional, show where a broken budget has grown.
"""

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.cache import BuildContext, Cache, digest
from orchestrator.artifacts.compiler import compiled_workload
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.call_programs import Argument, Calls, parse_runs, system_call, user_function
from orchestrator.benchmarks.calls.call_results import always_failing, summary
from orchestrator.benchmarks.calls.kind import KIND as CALLS
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.benchmarks.calls.table import CallsBenchmark, CallsTable
from orchestrator.catalog.probes import BASELINE, is_path
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.unique_keys import DuplicateKeyError, load_unique
from orchestrator.errors import ConfigError, EvidenceError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.fields import ValidationContext
from orchestrator.experiment.plan import plan
from orchestrator.experiment.problems import problems_of
from orchestrator.files import write_whole
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.results.budgets import Budget, BudgetError
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.exact import decimal_text, exact
from orchestrator.run.benchmark_kind import Refused
from orchestrator.run.boot import ReadyGuest, compared, prepare, without_number
from orchestrator.run.guest_checks import check_clocksource

SUFFIX = ".budgets.yaml"

_HEAD = "# Instructions that tests may take. pytest --qemu --qemu-update-budgets writes what it counts.\n"
_LARGEST = 4 << 20

Budgets = dict[str, dict[str, dict[str, Any]]]
"""Texts of budgets by test, label, and the machine that they were counted on."""

_BUDGETS = TypeAdapter(Budgets)


class _BySymbol(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instructions: Any
    symbols: dict[str, int | float]


@dataclass(frozen=True)
class CommittedBudget:
    """A budget in a file: a count, with or without an allowed increase, or a limit set by a user.

    ``symbols`` has the count of each symbol, if known.
    """

    budget: Budget
    symbols: Mapping[str, float] | None = None

    @property
    def figure(self) -> Fraction:
        """The committed count or limit."""
        figure = self.budget.counted if self.budget.limit is None else self.budget.limit
        assert figure is not None  # BudgetFile refuses what adds to no number
        return Fraction(figure)

    @property
    def most(self) -> Fraction:
        assert self.budget.most is not None
        return Fraction(self.budget.most)

    @property
    def is_limit(self) -> bool:
        return self.budget.limit is not None

    def __str__(self) -> str:
        return str(self.budget)


class BudgetFile:
    """The budgets of one test file, in ``NAME.budgets.yaml`` beside it. Several processes may write it."""

    def __init__(self, test_file: Path, cache: Cache) -> None:
        self._cache = cache  # used for its locks, as the folder may be in a repository
        self.path = test_file.with_name(test_file.stem + SUFFIX)

    def find(self, test: str, label: str, machine: str) -> CommittedBudget | None:
        """The budget, if there is one. Raises ConfigError for a malformed file."""
        text = self._read().get(test, {}).get(label, {}).get(machine)
        return None if text is None else self._parsed(text)

    def machines(self, test: str, label: str) -> list[str]:
        return list(self._read().get(test, {}).get(label, {}))

    def write(self, test: str, label: str, machine: str, budget: CommittedBudget) -> None:
        with self._cache.lock(f"budgets-{digest(str(self.path))}"):
            budgets = self._read()
            text = str(budget)
            value: object = int(text) if text.isdecimal() else text
            if budget.symbols is not None:
                symbols = {name: int(n) if float(n).is_integer() else n for name, n in budget.symbols.items()}
                value = {"instructions": value, "symbols": symbols}
            budgets.setdefault(test, {}).setdefault(label, {})[machine] = value
            try:
                write_whole(self.path, _HEAD + yaml.safe_dump(budgets, sort_keys=True, width=120))
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", where=str(self.path)) from None

    def _read(self) -> Budgets:
        try:
            if self.path.stat().st_size > _LARGEST:
                raise ConfigError("is too large for a file of budgets", where=str(self.path))
            content = load_unique(self.path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            return {}
        except DuplicateKeyError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(str(error.problem), where=f"{self.path}:{line}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot be read: {error}", where=str(self.path)) from None
        try:
            return _BUDGETS.validate_python(content, strict=True)
        except ValidationError:
            raise ConfigError("has to have budgets by test, label and machine", where=str(self.path)) from None

    def _parsed(self, text: object) -> CommittedBudget:
        if isinstance(text, dict):
            try:
                symbol = _BySymbol.model_validate(text, strict=True)
            except ValidationError:
                what = "a budget with symbols has instructions, and symbols with a number for each"
                raise ConfigError(f"found {str(text)[:80]!r}; {what}", where=str(self.path)) from None
            return replace(self._parsed(symbol.instructions), symbols=symbol.symbols)
        try:
            budget = Budget.of(text)
        except BudgetError as error:
            raise ConfigError(str(error), where=str(self.path)) from None
        if budget.most is None:
            what = f"found {text!r}, which adds to no number; write what was counted before it: N {budget}"
            raise ConfigError(what, where=str(self.path))
        return CommittedBudget(budget)


# Where a count has grown: the symbols with more instructions than before, in one line.

_MOST = 12
"""Symbols in a line."""


_ROUNDING = 1e-3
"""Instructions: counts of symbols are rounded means of some hundred calls."""


def where_it_grew(budget: CommittedBudget, after: Mapping[str, float]) -> Sequence[str]:
    """Lines with the symbols that have grown where a budget is exceeded; with its largest ones if it has no symbols."""
    if budget.symbols is None:
        return [f"most are in {largest(after)}", "the budget is without symbols: --qemu-update-budgets writes them"]
    symbols = sum(budget.symbols.values())
    if budget.is_limit or abs(symbols - float(budget.figure)) <= _ROUNDING:
        return [grown(budget.symbols, after)]
    edited = f"the budget was edited: its symbols add up to {symbols:.15g}, not to {decimal_text(budget.figure)}"
    return [f"{edited}; --qemu-update-budgets writes both", f"since its symbols: {grown(budget.symbols, after)}"]


def by_symbol(profile: CellProfile) -> Mapping[str, float]:
    """Instructions per call by symbol; functions of one name are added up."""
    sums: dict[str, Fraction] = {}
    for symbol in profile.symbols:
        sums[symbol.title] = sums.get(symbol.title, Fraction(0)) + Fraction(symbol.executed, profile.calls)
    return {title: float(count) for title, count in sums.items()}


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """The changes, the largest first: ``+626: kprobe_int3_handler 115 new, handle_exception 94 new``."""
    changes = {title: after.get(title, 0.0) - before.get(title, 0.0) for title in {**before, **after}}
    changed = sorted((title for title in changes if changes[title]), key=lambda title: (-abs(changes[title]), title))
    marks = [
        f"{title} {changes[title]:.10g}" + (" new" if title not in before else " gone" if title not in after else "")
        for title in changed
    ]
    return f"{sum(changes.values()):+.10g}: {_listed(marks) or 'no symbol differs'}"


def largest(after: Mapping[str, float]) -> str:
    """The symbols with the most instructions."""
    ordered = sorted(after, key=lambda title: (-after[title], title))
    return _listed([f"{title} {after[title]:.10g}" for title in ordered])


def _listed(parts: list[str]) -> str:
    more = len(parts) - _MOST
    return ", ".join([*parts[:_MOST], *([f"and {more} more"] if more > 0 else [])])


# Instructions in a test's guest: counts of a system call, of a C function and of a command, on the exact clock.

_CALLS = 1000
_REPEATS = 4
_RUNS = 8
_LIMIT = 600.0
_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SETTLING_LIMIT = 180.0


@dataclass(frozen=True)
class CallInstructions:
    """Instructions of one call, and their symbols: None if these cannot be measured and proved.

    ``failing`` are the system calls that always failed, with what they returned.
    """

    instructions: float
    symbols: Callable[[], Mapping[str, float] | None] = lambda: None
    failing: Sequence[str] = ()


def settle(guest: Guest) -> None:
    """Wait for the kernel's final clocksource, as the kernel patches its clock's code for it.

    Raises UsageError for a guest that is not on the exact clock.
    """
    if guest.machine.timing != "instructions":
        raise UsageError("instructions are counted on the exact clock", hint="guest(timing='instructions')")
    guest.wait_until_succeeds(["grep", "-qx", "tsc", _CLOCKSOURCE_FILE], time_limit=_SETTLING_LIMIT)


def _checked(benchmark: Mapping[str, object], expect: object) -> CallsBenchmark:
    try:
        return CallsBenchmark.model_validate({**benchmark, **({} if expect is None else {"expect": expect})})
    except ValidationError as error:
        raise UsageError("; ".join(problem.sentence for problem in problems_of(error, lambda path: ""))) from None


def _counted(guest: Guest, kernel: Kernel, calls: Calls) -> CallInstructions:
    settle(guest)
    calls.prepare(guest)
    ticks = int(kernel.config["CONFIG_HZ"])
    measured = calls.measure_exact(guest, repeats=_REPEATS, ticks_per_second=ticks, time_limit=_LIMIT)
    check_clocksource(guest)
    if not measured.samples:
        raise EvidenceError("nothing was counted")
    if measured.varies:
        counts = measured.costs or measured.samples
        raise EvidenceError(
            f"calls vary, and take {min(counts):.10g} to {max(counts):.10g} instructions: there is no exact count"
        )
    return CallInstructions(
        measured.samples[0], lambda: _symbols(guest, calls, measured), _failing(guest, calls, measured)
    )


def _failing(guest: Guest, calls: Calls, measured: Measurement) -> Sequence[str]:
    if measured.outcome is not None:
        results = measured.outcome.results
        return [summary(results)] if results.failed == results.observed and calls.expected is None else []
    try:
        watched = calls.watch(guest, time_limit=_LIMIT)
    except EvidenceError:
        if calls.expected is not None:
            raise
        return []
    return always_failing(watched) if calls.expected is None else []


def _symbols(guest: Guest, calls: Calls, measured: Measurement) -> Mapping[str, float] | None:
    """Instructions of the calls by symbol, in a repetition; None if unknown, or if the repetition differs."""
    if guest.machine.counter is None:
        return None
    with contextlib.suppress(EvidenceError):
        counter = Counter(guest, Symbols.of(guest))
        mark = counter.mark()
        marked = calls.measure_marked(guest, measured, time_limit=_LIMIT)
        profile = counter.profile(mark, marked.timed, cell="call", calls=marked.calls, program=calls.program)
        if profile.executed == marked.calls * measured.samples[0]:
            return by_symbol(profile)
    return None


_EXACT = Budget()
_SOFT = Budget(more=5, percent=True)
"""Tolerance written for commands: timer ticks and earlier work in the guest change their count."""

_LABEL_MAX = 80


class BudgetExceeded(LabError):
    """Something takes more instructions than its budget allows, or has no budget on this kernel and CPU."""


class BudgetWarning(UserWarning):
    """Something takes fewer instructions than its hard budget allows, or always fails."""


@dataclass(frozen=True)
class InstructionBudget:
    """Counts in a test's guest. Made by the fixture ``instruction_budget``.

    Budgets are in ``NAME.budgets.yaml`` beside the test file, by test, label, kernel and CPU. With
    ``--qemu-update-budgets`` the counts are written there instead, once the test has passed. Each method returns the
    count, and raises BudgetExceeded.
    """

    guest: TestedGuest
    workshop: BuildContext
    kernel: Kernel
    file: BudgetFile
    test: str
    updates: bool
    properties: list[tuple[str, str]] = field(default_factory=list)
    """The test's properties in JUnit's XML: each count, its budget, the committed count, and the change."""
    _counted: dict[tuple[str, str], CommittedBudget] = field(default_factory=dict)

    def call(
        self, call: str, arguments: Sequence[object] = (), *, label: str | None = None, expect: str | int | None = None
    ) -> float:
        """Count one system call, from user space and back; arguments as in an experiment's ``benchmark``.

        ``expect``, as there: what the call must return. Without it, a call that always fails is a BudgetWarning.
        """
        arch = self.kernel.spec.arch
        checked = _checked({"name": "syscall", "call": call, "arguments": arguments}, expect)
        number = system_calls()[call].number(arch, "auto")
        if number is None:
            raise UnsupportedError(f"kernel {self.kernel.spec.name} has no system call {call}")
        usual: Sequence[Argument] = next(
            (benchmark.arguments for benchmark in benchmarks().values() if benchmark.call == call), ()
        )
        words = checked.arguments or usual
        calls = system_call(number, words, entry="auto", word_size=ARCHITECTURES[arch].word, calls=_CALLS)
        return self._held(label or call, _counted(self.guest, self.kernel, replace(calls, expected=checked.expect)))

    def function(self, path: str, *, label: str | None = None, expect: str | int | None = None) -> float:
        """Count one call of ``workload()``, a region of code that a C file beside the test defines.

        ``expect``: what each of its system calls must return. Without it, one that always fails is a BudgetWarning.
        """
        file = self.guest.folder / path
        calls = user_function(compiled_workload(self.workshop, self.kernel.spec.arch, file).file, calls=_CALLS)
        if expect is not None:
            calls = replace(calls, expected=_checked({"name": "workload", "file": str(file)}, expect).expect)
        return self._held(label or path, _counted(self.guest, self.kernel, calls))

    def command(self, argv: Sequence[str], *, label: str | None = None) -> float:
        """Count one run of a guest's program, by its path: the cheapest of several. Its budget is soft."""
        settle(self.guest)
        # From before its fork to after its end. The first run loads its files into memory, and timer ticks fall into
        # some.
        runs = parse_runs(self.guest.succeed(["runbench", str(_RUNS), *argv], time_limit=_LIMIT).text, _RUNS)
        counted = CallInstructions(float(min(instructions for instructions, _, _ in runs)))
        return self._held(label or shlex.join(argv)[:_LABEL_MAX], counted, _SOFT)

    def check(self, label: str, count: float) -> float:
        """Check any count against its budget, such as an overhead measured by ``probe_cost``."""
        return self._held(label, CallInstructions(count))

    def write(self) -> None:
        """Write the updated budgets. Raises ConfigError if the file cannot be written."""
        for (label, machine), budget in self._counted.items():
            self.file.write(self.test, label, machine, budget)

    def _held(self, label: str, counted: CallInstructions, tolerance: Budget = _EXACT) -> float:
        count = exact(counted.instructions)
        machine = f"{self.kernel.spec.name} {self.kernel.release}, {self.guest.machine.cpu.name}"
        budget = self.file.find(self.test, label, machine)
        self.properties.extend(_properties(label, count, budget))
        if counted.failing:
            text = f"{self.test}: {label} measures a failure, {'; '.join(counted.failing)}"
            warnings.warn(f"{text}; if that is intended, set expect=...", BudgetWarning, stacklevel=3)
        if self.updates and (budget is None or not budget.is_limit):
            allowed = tolerance if budget is None else budget.budget
            self._counted[label, machine] = CommittedBudget(replace(allowed, counted=count), counted.symbols())
        elif budget is None:
            budgeted_machines = self.file.machines(self.test, label)
            raise BudgetExceeded(
                f"{label} takes {decimal_text(count)} instructions, and has no budget on {machine}",
                where=str(self.file.path),
                detail=[f"there is one on {budgeted}" for budgeted in budgeted_machines],
                hint="--qemu-update-budgets writes it",
            )
        elif count > budget.most:
            after, takes, more = counted.symbols(), decimal_text(count), decimal_text(count - budget.figure)
            raise BudgetExceeded(
                f"{label} takes {takes} instructions, {more} more than its budget, {budget}, on {machine}",
                where=str(self.file.path),
                detail=[] if after is None else where_it_grew(budget, after),
            )
        elif not budget.budget.more and not budget.is_limit and count < budget.figure:
            text = f"{self.test}: {label} takes {decimal_text(count)} of {budget} instructions on {machine}"
            warnings.warn(f"{text}; --qemu-update-budgets lowers the budget", BudgetWarning, stacklevel=3)
        return counted.instructions


def _properties(label: str, count: Fraction, budget: CommittedBudget | None) -> Iterator[tuple[str, str]]:
    yield f"instructions[{label}]", decimal_text(count)
    if budget is not None:
        yield f"instructions_budget[{label}]", str(budget)
        if not budget.is_limit:
            change = count - budget.figure
            yield f"instructions_before[{label}]", decimal_text(budget.figure)
            yield f"instructions_change[{label}]", f"{'+' if change >= 0 else ''}{decimal_text(change)}"


@dataclass(frozen=True)
class ProbeCost:
    """The cost of a call with a probe in its path."""

    value: float
    """The cost of one call with the probe, in ``unit``."""
    overhead: float
    """The probe's part of it, in ``unit``: the cost of the call without the probe is subtracted."""
    unit: str
    """``instructions``."""
    evidence: Evidence
    """What proves the mechanism: the bytes at the probe point, the hits, the traps."""
    record: CellRecord
    """The complete record, as the lab would store it."""


class ProbeCosts:
    """Measures in one guest. Made by the fixture ``probe_cost``."""

    def __init__(self, guest: TestedGuest, workshop: BuildContext, kernel: Kernel, image: str | None) -> None:
        self._guest, self._workshop, self._kernel, self._image = guest, workshop, kernel, image

    def __call__(self, probe: str, *, handler: str = "noop", point: str | None = None, **benchmark: Any) -> ProbeCost:
        """Measure gettimeofday with a probe at its function, or at ``point``, and without.

        ``probe`` is a kind of probe, or the path of a module of your own. ``benchmark`` are keys of an experiment's
        ``benchmark``: ``call="getppid"`` for another system call, ``calls``, ``repeats``, ``expect``. Raises UsageError
        for what no experiment may contain, EvidenceError if a proof fails, UnsupportedError if the kernel cannot have
        the probe.
        """
        settle(self._guest)
        table = self._table(probe, handler, point, benchmark)
        (boot,) = plan(Experiment(Heading(name="probe-cost"), [NamedTable(None, CALLS, table)])).boots
        artifacts = prepare(self._workshop, CALLS, boot)
        ready = ReadyGuest(self._guest, replace(artifacts, machine=self._guest.machine), Symbols.of(self._guest))
        records: dict[str, CellRecord] = {}
        for cell in boot.cells:
            prepared = artifacts.cells[cell.id]
            if isinstance(prepared, Refused):
                record = without_number(cell, prepared.status, prepared.reason)
            else:
                record = measure_call(ready, cell, prepared)
            records[cell.id] = compared(CALLS, cell, record, records)
        return _cost(records[boot.cells[-1].id])

    def _table(self, probe: str, handler: str, point: str | None, benchmark: Mapping[str, Any]) -> CallsTable:
        machine = self._guest.machine
        path = str(self._guest.folder / probe) if is_path(probe) else probe
        described: dict[str, Any] = {
            "image": self._image,
            "benchmark": {"name": "syscall" if "call" in benchmark else "gtodbench", **benchmark},
            "kernels": [self._kernel.spec.argument],
            "machines": [{"cpu": machine.cpu.name, "smp": machine.smp, "memory": f"{machine.memory_mib}M"}],
            "probes": [BASELINE, path],
            "handlers": [handler],
        }
        if point is not None:
            described["points"] = [point]
        try:
            return CallsTable.model_validate(described, context=ValidationContext(qemu_cpu_names))
        except ValidationError as error:
            problems = problems_of(error, lambda path: "unknown key")
            sentences = [f"{'.'.join(map(str, problem.path))}: {problem.sentence}" for problem in problems]
            raise UsageError("; ".join(sentences)) from None


def _cost(record: CellRecord) -> ProbeCost:
    if record.status != "ok":
        refused = UnsupportedError if record.status == "unsupported" else EvidenceError
        raise refused(record.reason or record.status)
    assert record.value is not None
    if record.overhead is None or record.evidence is None:
        raise EvidenceError(f"{record.id} has no overhead: {'; '.join(record.notes)}")
    return ProbeCost(record.value, record.overhead, record.unit, record.evidence, record)
