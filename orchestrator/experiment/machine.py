# SPDX-License-Identifier: GPL-2.0-only
"""The machine of a table, and its conflicts with the table's kernels and clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BeforeValidator

from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Strict, whole
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import KeyPath
from orchestrator.results.contract import Clock

DEFAULT_MEMORY = "256M"


class Machine(Strict):
    """A guest's hardware."""

    cpu: Annotated[str, BeforeValidator(fields.cpu)]
    """The CPU model. A kernel that cannot boot on it is an error; ``host`` needs KVM and the clock ``wall``."""
    smp: Annotated[int, whole(1, 16)] = 1
    """Virtual CPUs. The clock ``instructions`` needs 1."""
    memory: Annotated[str, BeforeValidator(fields.memory)] = DEFAULT_MEMORY
    """The guest's memory: MiB with an ``M`` or with no unit, GiB with a ``G``.

    Whole systems have by default what their work needs.
    """

    @property
    def memory_mib(self) -> int:
        """The guest's memory in MiB."""
        return int(self.memory.removesuffix("M"))


def machine_conflicts(machines: Sequence[Machine], kernels: Sequence[str], clock: Clock) -> Iterator[Problem]:
    """Conflicts of a table's machines with its clock and its kernels."""
    for index, machine in enumerate(machines):
        if clock == "instructions" and machine.smp != 1:
            why = "QEMU counts the instructions of one virtual CPU only; clock 'wall' takes more"
            yield Problem(("machines", index, "smp"), f"found {machine.smp}; clock 'instructions' needs 1: {why}")
        for kernel in kernels:
            yield from kernel_conflicts(kernel, machine, ("machines", index, "cpu"), ("kernels",))


def kernel_conflicts(kernel: str, machine: Machine, path: KeyPath, other: KeyPath) -> Iterator[Problem]:
    """Why a kernel cannot run on a machine, as a problem of the key at ``path``."""
    reason = kernel_spec(kernel).unsupported_reason(cpu(machine.cpu))
    if reason:
        yield Problem(path, reason, other=other)
