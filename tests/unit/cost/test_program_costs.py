# SPDX-License-Identifier: GPL-2.0-only
"""What each program of a tool takes in a call, from the profile of the calls and the kernel's count of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from record_builders import cell, evidence

from orchestrator.cost.program_costs import ProgramCost, program_costs
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import CellRecord, ProfileEvidence

CALLS = 10
TRAPS = 10
"""Of a call of the built record."""
START = 0xC0000100


def program(runs: int) -> dict[str, Any]:
    return {"name": "on_open", "attached": "bpf-kprobe do_sys_openat2", "runs": runs, "address": hex(START), "size": 8}


def tool(runs: int) -> CellRecord:
    return cell("kprobe", evidence={**evidence("kprobe"), "calls": 1000, "hits": 1000, "programs": [program(runs)]})


def profiled(record: CellRecord, folder: Path, *symbols: SymbolProfile) -> CellRecord:
    (executed, *_), of_symbols = record.samples, sum(symbol.executed for symbol in symbols)
    traps = InstructionCount(1, "cc", TRAPS * CALLS)
    rest = InstructionCount(0, "90", int(executed) * CALLS - of_symbols - traps.executed)
    kernel = SymbolProfile(name="f", place="kernel", address=START, instructions=(rest, traps))
    profile = CellProfile(cell=record.id, arch="x86_64", calls=CALLS, has_details=False, symbols=(*symbols, kernel))
    sha = write_profile(profile, folder / FOLDER / file_name(record.id))
    proof = ProfileEvidence(sha256=sha, calls=CALLS, instructions=profile.executed, int3=traps.executed)
    return CellRecord.model_validate({**record.model_dump(), "profile": proof.model_dump()})


def code(address: int, *offsets: int) -> SymbolProfile:
    """Each instruction is executed twice a call."""
    instructions = tuple(InstructionCount(offset, "90", 2 * CALLS) for offset in offsets)
    return SymbolProfile(name="BPF program on_open", place="generated", address=address, instructions=instructions)


@pytest.mark.parametrize(("address", "offset"), [(START, 0), (0, START)])
def test_instructions_of_its_code_are_a_programs_own(address: int, offset: int, tmp_path: Path) -> None:
    record = profiled(tool(1000), tmp_path, code(address, offset, offset + 1, offset + 7, offset + 8))
    assert program_costs(tmp_path, record) == [ProgramCost("on_open", "bpf-kprobe do_sys_openat2", 2.0, 6.0)]


@pytest.mark.parametrize(("runs", "costs"), [(3000, [3.0]), (0, [])])
def test_without_a_profile_of_it_the_kernels_count_is_known(runs: int, costs: list[float], tmp_path: Path) -> None:
    for record in (tool(runs), profiled(tool(runs), tmp_path, code(START + 64, 0))):
        programs = program_costs(tmp_path, record)
        assert [(each.runs, each.instructions) for each in programs] == [(times, None) for times in costs]


def test_what_is_no_tool_has_no_programs(tmp_path: Path) -> None:
    assert program_costs(tmp_path, cell("kprobe")) == []
