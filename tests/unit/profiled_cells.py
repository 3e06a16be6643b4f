# SPDX-License-Identifier: GPL-2.0-only
"""Cells with profiles on disk that add up to what real guests counted."""

from __future__ import annotations

from pathlib import Path

from modelled_cells import BASE, counted, record

from orchestrator.profile.code.instruction_classes import executed_classes
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import CellRecord, ProfileEvidence

CALLS = 500
_CODES = {"popf": "9d", "pushf": "9c"}


def profiled(cell: CellRecord, directory: Path, *codes: tuple[str, int]) -> CellRecord:
    """The cell with a profile of these instructions, so many a call."""
    instructions = tuple(InstructionCount(at, code, times * CALLS) for at, (code, times) in enumerate(codes))
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    profile = CellProfile(cell=cell.id, arch="i386", calls=CALLS, has_details=False, symbols=(symbol,))
    sha = write_profile(profile, directory / FOLDER / file_name(cell.id))
    int3 = sum(times for code, times in codes if code == "cc")
    proof = ProfileEvidence(sha256=sha, calls=CALLS, instructions=profile.executed, int3=int3 * CALLS)
    counts = {"profile": proof.model_dump(), "executed": executed_classes(profile).model_dump()}
    return CellRecord.model_validate({**cell.model_dump(), **counts})


def list5(directory: Path, *probes: str, kernel: str = "lab-i386-up") -> list[CellRecord]:
    """Probes of List 5 and what they are compared with, as if ``kernel`` had counted what lab-i386-up does."""
    cells = [_cell("none", kernel, directory, ("90", BASE))]
    for probe in probes:
        counts = counted("list5")[probe]
        codes = [("90", BASE + counts["instruction"])]
        codes += [(code, counts.get("trap", 0)) for code in ("cc", "cf")]
        codes += [(code, counts[name]) for name, code in _CODES.items() if name in counts]
        cells.append(_cell(probe, kernel, directory, *((code, times) for code, times in codes if times)))
    return cells


def _cell(probe: str, kernel: str, directory: Path, *codes: tuple[str, int]) -> CellRecord:
    cell = record("list5", probe)
    identity = cell.id.replace(cell.kernel, kernel)
    return profiled(
        CellRecord.model_validate(cell.model_dump() | {"kernel": kernel, "id": identity}), directory, *codes
    )
