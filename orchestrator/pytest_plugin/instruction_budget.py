# SPDX-License-Identifier: GPL-2.0-only
"""The fixture ``instruction_budget``: a test's counts of instructions, checked against the committed numbers."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pydantic import ValidationError

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.call_benchmark import CallsBenchmark
from orchestrator.benchmarks.calls.call_programs import Argument, system_call, user_function
from orchestrator.benchmarks.calls.whole_programs import parse_runs
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import LabError, UnsupportedError, UsageError
from orchestrator.experiment.problems import problems_of
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.pytest_plugin.budget_file import BudgetFile, CommittedBudget
from orchestrator.pytest_plugin.counted_calls import LIMIT, CallInstructions, count_calls, settle
from orchestrator.pytest_plugin.grown_symbols import where_it_grew
from orchestrator.results.budgets import Budget
from orchestrator.results.exact import decimal_text, exact

_CALLS = 1000
_RUNS = 8


def _checked(benchmark: Mapping[str, object], expect: object) -> CallsBenchmark:
    try:
        return CallsBenchmark.model_validate({**benchmark, **({} if expect is None else {"expect": expect})})
    except ValidationError as error:
        raise UsageError("; ".join(problem.sentence for problem in problems_of(error, lambda path: ""))) from None


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
        return self._held(label or call, count_calls(self.guest, self.kernel, replace(calls, expected=checked.expect)))

    def function(self, path: str, *, label: str | None = None, expect: str | int | None = None) -> float:
        """Count one call of ``workload()``, a region of code that a C file beside the test defines.

        ``expect``: what each of its system calls must return. Without it, one that always fails is a BudgetWarning.
        """
        file = self.guest.folder / path
        calls = user_function(compiled_workload(self.workshop, self.kernel.spec.arch, file).file, calls=_CALLS)
        if expect is not None:
            calls = replace(calls, expected=_checked({"name": "workload", "file": str(file)}, expect).expect)
        return self._held(label or path, count_calls(self.guest, self.kernel, calls))

    def command(self, argv: Sequence[str], *, label: str | None = None) -> float:
        """Count one run of a guest's program, by its path: the cheapest of several. Its budget is soft."""
        settle(self.guest)
        # From before its fork to after its end. The first run loads its files into memory, and timer ticks fall into
        # some.
        runs = parse_runs(self.guest.succeed(["runbench", str(_RUNS), *argv], time_limit=LIMIT).text, _RUNS)
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
