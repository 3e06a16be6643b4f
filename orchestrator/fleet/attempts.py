# SPDX-License-Identifier: GPL-2.0-only
"""What a run has under way on a fleet: jobs with what is left of them, attempts at them, and checks of workers."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.experiment.cell import Cell
from orchestrator.fleet.messages import CheckedSteps
from orchestrator.fleet.roster import OVERHEAD_MIB, Member
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import BootTask
from orchestrator.run.crew import Job


class Result(BaseModel):
    """How a worker says that a boot ended."""

    model_config = ConfigDict(extra="forbid")

    end: str = Field(pattern=r"^(done|host|usage|error|unwanted)$")
    messages: int = Field(ge=0)
    what: str = Field(default="", max_length=100_000)
    where: str = Field(default="", max_length=10_000)
    hint: str = Field(default="", max_length=10_000)
    detail: list[str] = Field(default=[], max_length=1000)
    steps: CheckedSteps = ()


@dataclasses.dataclass
class Work:
    """A job with what is left of it."""

    job: Job
    left: dict[str, Cell[Any]]
    guests: int
    losses: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """The workers that it has lost, and what was heard of each."""
    remarks: dict[str, str] = dataclasses.field(default_factory=dict)
    """What is to be said of a cell that is measured again."""

    @property
    def memory_mib(self) -> int:
        return self.job.artifacts.machine.memory_mib + OVERHEAD_MIB

    @property
    def is_timed(self) -> bool:
        """Whether times are measured in it: all by one worker."""
        return self.job.task.boot.clock == "wall"

    @property
    def machine(self) -> str:
        """What names the machine of which a worker may have a saved guest."""
        boot = self.job.task.boot
        return f"{self.job.artifacts.keys['initramfs']} {boot.cpu} {boot.smp} {boot.memory_mib} {boot.image}"


@dataclasses.dataclass(frozen=True)
class Check:
    """A record of one worker's, to be counted by another."""

    record: CellRecord
    of: Member
    work: Work
    done: int
    """The number of its boot among those of the worker."""
    is_again: bool = False
    """Whether a worker was lost with it before."""


@dataclasses.dataclass
class Attempt:
    """A boot on a worker: of a job, of the calibration (neither work nor check), or to check another worker."""

    name: str
    member: Member
    task: BootTask
    work: Work | None = None
    check: Check | None = None
    heard: int = 0
    """Messages so far."""
    files: int = 0
    bytes: int = 0
    """Of its files."""
    last: str = ""
    """The last progress that was reported."""
    outcomes: dict[str, CellRecord] = dataclasses.field(default_factory=dict)
