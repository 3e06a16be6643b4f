# SPDX-License-Identifier: GPL-2.0-only
"""A cell of a table: everything that one figure depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler, ProbeKind, written
from orchestrator.catalog.words import ProfilePart
from orchestrator.experiment.guest_spec import DEFAULT_MEMORY, GuestSpec, MachineSpec
from orchestrator.experiment.problems import Problem
from orchestrator.experiment.source import KeyPath
from orchestrator.guest.machine import ChannelKind
from orchestrator.probes.point import Point
from orchestrator.results.contract import Clock, ReferenceValue


def kernel_conflicts(kernel: str, machine: MachineSpec, path: KeyPath, conflicting: KeyPath) -> Iterator[Problem]:
    """Report a kernel that cannot run on a machine as a problem of the key at ``path``, in conflict with another."""
    reason = kernel_spec(kernel).unsupported_reason(cpu(machine.cpu))
    if reason:
        yield Problem(path, reason, conflicting=conflicting)


TaskT = TypeVar("TaskT", covariant=True)


@dataclass(frozen=True)
class Cell(Generic[TaskT]):
    """One combination to measure: the fields of every kind of benchmark, and the kind's own ``task``.

    ``probe`` names its row or column in the table: a probe, a user's module, or a row of the benchmark. ``kernel`` and
    ``image`` are catalogue names or absolute paths; ``spec`` is the resolved kernel. ``time_limit`` is in seconds of
    the host's time. ``point`` is named by the experiment or found in a guest. ``parameters`` distinguish the cell from
    others and are recorded. ``published`` has its published figures. ``compared_with`` has the ids of the cells that
    its overhead is computed from: the baseline, then the baseline's A/A boots. ``profile`` has the requested parts of
    its profile; ``counts_classes`` of instructions where modelled time is computed from them. ``takes_turns``: all CPUs
    make its calls, one after the other. ``kernel_modules`` are modules of the kernel's own, loaded first.
    """

    id: str
    table: str | None
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    spec: KernelSpec = field(compare=False, repr=False)
    probe: str
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
    counts_classes: bool = False
    takes_turns: bool = False
    kernel_modules: tuple[str, ...] = ()

    @property
    def guest(self) -> GuestSpec:
        """The guest that it is measured in."""
        return GuestSpec.model_construct(
            cpu=self.cpu,
            smp=self.smp,
            memory=f"{self.memory_mib}M",
            kernel=self.kernel,
            timing="instructions" if self.clock == "instructions" else "auto",
            image=self.image,
            channel=self.channel,
            kernel_modules=bool(self.kernel_modules),
        )

    @property
    def point_discovered(self) -> bool:
        """Whether the point was found in a guest, not named by the experiment."""
        return self.point is not None and self.point.found_by is not None


def machine_id(machine: MachineSpec) -> str:
    """The part of a cell's id that names its machine."""
    # CPU names have no plus, so no two machines share an id.
    count = f"+x{machine.smp}" if machine.smp > 1 else ""
    memory = f"+{machine.memory}" if machine.memory != DEFAULT_MEMORY else ""
    return f"{machine.cpu}{count}{memory}"


def module_parameters(kind: ProbeKind) -> dict[str, str]:
    """The recorded parameters of a user's module; empty for other probes."""
    return {"module_parameters": written(kind.parameters)} if kind.parameters else {}


def rows_on(kernels: Iterable[str], rows: Iterable[str], kernel_for: Mapping[str, str]) -> dict[str, list[str]]:
    """Each kernel's rows, the baseline first: the table's kernels, then those of ``kernel_for``."""
    rows = list(rows)
    everywhere = [row for row in rows if row not in (BASELINE, *kernel_for)]
    rows_on = {kernel: [BASELINE, *everywhere] for kernel in kernels}
    for row in rows:
        if row in kernel_for:
            rows_on.setdefault(kernel_for[row], [BASELINE]).append(row)
    return rows_on
