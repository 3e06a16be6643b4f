# SPDX-License-Identifier: GPL-2.0-only
"""A test's counts of instructions, held against the numbers committed beside it."""

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import EvidenceError, LabError
from orchestrator.pytest_plugin.budget_file import Budget, BudgetFile
from orchestrator.pytest_plugin.exact_clock import Counted, count_call, count_command, count_function
from orchestrator.pytest_plugin.grown_symbols import by_symbol, where_it_grew
from orchestrator.pytest_plugin.tested_guest import TestedGuest

_TICKS_PERCENT = 5.0
"""Of a command's new budget: ticks, and what the guest has done before, change it a little."""

_LABEL_MAX = 80


class BudgetExceeded(LabError):
    """Something takes more instructions than its budget allows, or has no budget on this kernel and CPU."""


class BudgetWarning(UserWarning):
    """Something takes fewer instructions than its hard budget allows, or all that it does is to fail."""


@dataclass(frozen=True)
class InstructionBudget:
    """Counts in a test's guest. Made by the fixture ``instruction_budget``.

    Budgets are in ``NAME.budgets.yaml`` beside the test file, by test, label, kernel and CPU. With
    ``--qemu-update-budgets`` what is counted is written there instead, once the test has passed. Each method returns
    the count, and raises BudgetExceeded.
    """

    guest: TestedGuest
    workshop: BuildContext
    kernel: Kernel
    file: BudgetFile
    test: str
    updates: bool
    _counted: dict[tuple[str, str], Budget] = field(default_factory=dict)

    def call(
        self, call: str, arguments: Sequence[object] = (), *, label: str | None = None, expect: str | int | None = None
    ) -> float:
        """Count one system call, from user space and back; arguments as in an experiment's ``benchmark``.

        ``expect`` as there: what the call must return. One that always fails is a BudgetWarning without it.
        """
        return self._held(label or call, count_call(self.guest, self.kernel, call, arguments, expect))

    def function(self, path: str, *, label: str | None = None, expect: str | int | None = None) -> float:
        """Count one call of ``workload()``, which a C file beside the test defines: a region of code.

        ``expect``: what each system call of it must return. One that always fails is a BudgetWarning without it.
        """
        counted = count_function(self.guest, self.workshop, self.kernel, self.guest.folder / path, expect)
        return self._held(label or path, counted)

    def command(self, argv: Sequence[str], *, label: str | None = None) -> float:
        """Count one run of a program of the guest, by its path, the cheapest of several; its budget is soft."""
        return self._held(label or shlex.join(argv)[:_LABEL_MAX], count_command(self.guest, argv), _TICKS_PERCENT)

    def check(self, label: str, count: float) -> float:
        """Hold any count against its budget: an overhead that ``probe_cost`` has measured, for one."""
        return self._held(label, Counted(count))

    def write(self) -> None:
        """Write the budgets that are updated. Raises ConfigError where the file cannot be written."""
        for (label, machine), budget in self._counted.items():
            self.file.write(self.test, label, machine, budget)

    def _held(self, label: str, counted: Counted, percent: float = 0.0) -> float:
        count = counted.instructions
        machine = f"{self.kernel.spec.name} {self.kernel.release}, {self.guest.machine.cpu.name}"
        budget = self.file.find(self.test, label, machine)
        if counted.failing:
            text = f"{self.test}: {label} measures a failure, {'; '.join(counted.failing)}"
            warnings.warn(f"{text}; where that is meant, say so: expect=...", BudgetWarning, stacklevel=3)
        if self.updates and (budget is None or not budget.is_limit):
            allowed = percent if budget is None else budget.percent
            self._counted[label, machine] = Budget(count, allowed, _symbols(counted))
        elif budget is None:
            others = self.file.machines(self.test, label)
            raise BudgetExceeded(
                f"{label} takes {count:.15g} instructions, and has no budget on {machine}",
                where=str(self.file.path),
                detail=[f"there is one on {other}" for other in others],
                hint="--qemu-update-budgets writes it",
            )
        elif count > budget.most:
            raise BudgetExceeded(
                f"{label} takes {count:.15g} instructions, {count - budget.instructions:.15g} more than its budget, "
                f"{budget}, on {machine}",
                where=str(self.file.path),
                detail=_where_it_grew(budget, counted),
            )
        elif budget.percent == 0 and not budget.is_limit and count < budget.instructions:
            text = f"{self.test}: {label} takes {count:.15g} of {budget} instructions on {machine}"
            warnings.warn(f"{text}; --qemu-update-budgets lowers the budget", BudgetWarning, stacklevel=3)
        return count


def _symbols(counted: Counted) -> Mapping[str, float] | None:
    """Where the instructions are; None where that cannot be measured and proved."""
    if counted.profile is None:
        return None
    with contextlib.suppress(EvidenceError):
        return by_symbol(counted.profile())
    return None


def _where_it_grew(budget: Budget, counted: Counted) -> Sequence[str]:
    """The symbols that a broken budget has more of; nothing where that cannot be measured and proved."""
    after = _symbols(counted)
    return [] if after is None else where_it_grew(budget, after)
