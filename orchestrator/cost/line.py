# SPDX-License-Identifier: GPL-2.0-only
"""A line of costs: a subject, the calls that reach it, and the cells that measure it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.catalog.bpftrace_text import needs_newer
from orchestrator.catalog.probes import (
    IMAGE,
    NEWER_IMAGE,
    PREFIX,
    is_one_liner,
)
from orchestrator.catalog.tools import TOOLS_IMAGE, is_script
from orchestrator.cost.call_table import modules_for
from orchestrator.cost.subjects import Subject
from orchestrator.results.contract import CellRecord, RunRecord


@dataclass(frozen=True)
class CostLine:
    """A subject, its point, and the benchmark that reaches it on ``kernels``: equal ones share a table.

    ``cells`` has the id of its cell for each kernel, once they are planned. One that ``is_anywhere`` is a module whose
    point is not known: that its functions are entered proves its hits. ``in_image`` is the image that the calls need.
    """

    subject: Subject
    point: str | None
    benchmark: Mapping[str, Any]
    kernels: tuple[str, ...] = ()
    is_anywhere: bool = False
    named_image: str | None = None
    in_image: str | None = None
    cells: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def hits(self) -> int:
        """How often a call of the benchmark passes the point."""
        hits: int = self.benchmark.get("hits", 1)
        return hits

    @property
    def modules(self) -> tuple[str, ...]:
        """The kernel's own modules that the benchmark's calls need."""
        return modules_for(self.benchmark)

    @property
    def image(self) -> str | None:
        """The image that has a tool, or whose bpftrace takes a program; None for what needs none.

        The user's ``named_image`` comes first, and the one that the calls need ``in_image`` before it.
        """
        if self.in_image is not None:
            return self.in_image
        row, command = self.subject.row, self.subject.command
        if not is_one_liner(row) and command is None:
            return None
        if self.named_image is not None:
            return self.named_image
        if command is not None and is_script(row) and command.file is not None:
            return NEWER_IMAGE
        if command is not None and not is_one_liner(row):
            return None if command.is_static else TOOLS_IMAGE
        return NEWER_IMAGE if needs_newer(row.removeprefix(PREFIX)) else IMAGE

    @property
    def is_of_runs(self) -> bool:
        """Whether runs of a command are measured, which have as many hits as they have."""
        return "run" in self.benchmark

    @property
    def table(self) -> TableKey:
        """What lines of one table have in common."""
        return self.point, repr(self.benchmark), self.image, self.kernels

    def records(self, record: RunRecord) -> Sequence[CellRecord]:
        """The records of the line's cells in a run."""
        ids = set(self.cells.values())
        return [cell for cell in record.cells if cell.id in ids]

    def on_each_kernel(self) -> Sequence[CostLine]:
        """A line for each kernel: a subject may be hit by other calls on another."""
        return [
            replace(self, kernels=(kernel,), cells={kernel: self.cells[kernel]} if kernel in self.cells else {})
            for kernel in self.kernels
        ]


TableKey = tuple[str | None, str, str | None, tuple[str, ...]]


def on_all(lines: Iterable[CostLine]) -> list[CostLine]:
    """The lines, those that are equal but for their kernels as one."""
    alike: dict[tuple[object, ...], list[CostLine]] = {}
    for line in lines:
        alike.setdefault((line.subject, line.point, repr(line.benchmark)), []).append(line)
    return [
        replace(same[0], kernels=tuple(dict.fromkeys(kernel for line in same for kernel in line.kernels)))
        for same in alike.values()
    ]
