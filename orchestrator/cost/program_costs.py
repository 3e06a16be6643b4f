# SPDX-License-Identifier: GPL-2.0-only
"""What each program of a tool takes in a call: its runs, and the instructions of its own code, from the profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from orchestrator.errors import LabError
from orchestrator.probes.bpf_program import ENTRY_BYTES
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord, ProgramRuns


@dataclass(frozen=True)
class ProgramCost:
    """A program of a tool: how it is ``attached``, its runs in a call, and the instructions of its code in a call.

    The instructions are not known of calls without a profile.
    """

    name: str
    attached: str
    runs: float
    instructions: float | None


def program_costs(folder: Path, cell: CellRecord) -> Sequence[ProgramCost]:
    """The programs of a tool's cell that calls run, of a run in ``folder``; empty for other cells."""
    if cell.evidence is None or not cell.evidence.programs:
        return []
    profile = None
    if cell.profile is not None:
        with suppress(LabError):  # a missing or changed file; the runs do not depend on it
            profile = load_profile(folder, cell)
    return list(_costs(cell.evidence.programs, cell.evidence.calls, profile))


def _costs(programs: Sequence[ProgramRuns], calls: int, profile: CellProfile | None) -> Iterator[ProgramCost]:
    for program in programs:
        runs, instructions = Fraction(program.runs, calls), None
        if profile is not None:
            executed = _executed(program, profile)
            start = int(program.address, 16)
            entered = executed[min(executed)] if executed and min(executed) < start + ENTRY_BYTES else 0
            if entered:
                runs = Fraction(entered, profile.calls)
                instructions = float(Fraction(sum(executed.values()), profile.calls))
        if runs:
            yield ProgramCost(program.name, program.attached, round(float(runs), 3), instructions)


def _executed(program: ProgramRuns, profile: CellProfile) -> Mapping[int, int]:
    """How often the calls executed the instructions of a program's code, by address."""
    start = int(program.address, 16)
    code = range(start, start + program.size)
    return {address: executed for address, executed in profile.generated.items() if address in code}
