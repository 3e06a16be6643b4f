# SPDX-License-Identifier: GPL-2.0-only
"""One combination of a table: everything that a number depends on, and its machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

from pydantic import BeforeValidator

from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler, ProbeKind, written
from orchestrator.catalog.words import ProfilePart
from orchestrator.experiment import fields
from orchestrator.experiment.fields import Strict, whole
from orchestrator.experiment.problems import Problem
from orchestrator.experiment.source import KeyPath
from orchestrator.guest.machine import ChannelKind
from orchestrator.probes.point import Point
from orchestrator.results.contract import Clock, ReferenceValue

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
        return int(self.memory.removesuffix("M"))


def kernel_conflicts(kernel: str, machine: Machine, path: KeyPath, other: KeyPath) -> Iterator[Problem]:
    """Why a kernel cannot run on a machine, as a problem of the key at ``path``."""
    reason = kernel_spec(kernel).unsupported_reason(cpu(machine.cpu))
    if reason:
        yield Problem(path, reason, other=other)


TaskT = TypeVar("TaskT", covariant=True)


@dataclass(frozen=True)
class Cell(Generic[TaskT]):
    """One combination to measure: what every kind of benchmark has, and the kind's own ``task``.

    ``row`` is its row or column in the table: a probe, a user's module, or a row of the benchmark's own; it is recorded
    as ``probe``. ``kernel`` and ``image`` are a catalogue's names or absolute paths, and ``spec`` is the kernel.
    ``memory_mib`` is in MiB, ``time_limit`` in seconds of the host's time. ``point`` is the one that the experiment
    names, or asks to find. ``parameters`` further distinguish it from other cells, and are recorded; ``published`` is
    its published figures. ``compared_with`` is the ids of the cells that its overhead follows from: its baseline first,
    then the baseline's A/A boots. ``profile`` is what its profile is to have, nothing where none is wanted.
    ``kernel_modules`` are those of the kernel's own that are loaded first.
    """

    id: str
    table: str | None
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    spec: KernelSpec = field(compare=False, repr=False)
    row: str
    handler: Handler
    benchmark: str
    metric: str
    repeats: int
    clock: Clock
    image: str | None
    channel: ChannelKind
    time_limit: int
    task: TaskT
    point: Point | None = None
    parameters: Mapping[str, str | int] = field(default_factory=dict, hash=False)
    published: ReferenceValue | None = field(default=None, hash=False)
    compared_with: tuple[str, ...] = ()
    profile: tuple[ProfilePart, ...] = ()
    kernel_modules: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether a guest has found the point out, and the experiment does not name it."""
        return self.point is not None and self.point.found_by is not None


def machine_id(machine: Machine) -> str:
    """The part of a cell's id that names its machine."""
    # No CPU's name has a plus in it, so no two machines share an id.
    count = f"+x{machine.smp}" if machine.smp > 1 else ""
    memory = f"+{machine.memory}" if machine.memory != DEFAULT_MEMORY else ""
    return f"{machine.cpu}{count}{memory}"


def module_parameters(kind: ProbeKind) -> dict[str, str]:
    """What is recorded of a user's module with parameters, among the cell's own; nothing of any other probe."""
    return {"module_parameters": written(kind.parameters)} if kind.parameters else {}


def rows_on(kernels: Iterable[str], rows: Iterable[str], kernel_for: Mapping[str, str]) -> dict[str, list[str]]:
    """Each kernel's rows, the baseline first: the table's kernels, then the other kernels of single rows."""
    rows = list(rows)
    everywhere = [row for row in rows if row not in (BASELINE, *kernel_for)]
    rows_on = {kernel: [BASELINE, *everywhere] for kernel in kernels}
    for row in rows:
        if row in kernel_for:
            rows_on.setdefault(kernel_for[row], [BASELINE]).append(row)
    return rows_on
