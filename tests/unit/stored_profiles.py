# SPDX-License-Identifier: GPL-2.0-only
"""Runs with profiles in a lab's store, as a measurement leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from record_builders import cell, evidence

from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import Store

CALLS = 500


def profile(name: str, executed: Mapping[str, int], **changes: Any) -> CellProfile:
    """A cell whose calls execute so many times the only instruction of each function: ``f``, or ``f [module]``."""
    symbols = []
    for number, (title, count) in enumerate(sorted(executed.items(), key=lambda pair: -pair[1])):
        function, _, module = title.removesuffix("]").partition(" [")
        place: Any = "module" if module else "user" if function == "callbench" else "kernel"
        code = (InstructionCount(0, "90", count * CALLS),)
        address = 0xC1000000 + 64 * number if place == "kernel" else 64 * number if module else 0
        symbols.append(
            SymbolProfile(name=function, place=place, module=module or None, address=address, instructions=code)
        )
    fields = {"arch": "i386", "calls": CALLS, "has_details": False, "symbols": symbols, **changes}
    return CellProfile.model_validate({"cell": name, **fields})


def stacked(name: str, stacks: Mapping[str, int], **changes: Any) -> CellProfile:
    """A cell with these stacks: so many instructions per call of the last function of each."""
    executed: dict[str, int] = {}
    for stack, count in stacks.items():
        last = stack.rpartition(";")[2]
        executed[last] = executed.get(last, 0) + count
    folded = tuple((stack, count * CALLS) for stack, count in stacks.items())
    return profile(name, executed, stacks=folded, **changes)


def record(made: CellProfile, probe: str, directory: Path, **changes: Any) -> CellRecord:
    """The record of a cell with this profile, whose file is written into the run's directory."""
    value = made.executed / made.calls
    directory.mkdir(exist_ok=True)
    proof = {
        "sha256": write_profile(made, directory / FOLDER / file_name(made.cell)),
        "calls": made.calls,
        "instructions": made.executed,
        "int3": 0,
    }
    return cell(
        probe,
        id=made.cell,
        samples=[value] * 2,
        value=value,
        overhead=None,
        interval=None,
        evidence=evidence(probe, int3=0),
        profile=proof,
        **changes,
    )


def store_run(lab: Path, directory: Path, *cells: CellRecord, experiment: str = "x") -> str:
    """A run of these cells in the lab's store; its id."""
    with Store.open(lab) as store:
        entry = store.begin_run(experiment, [one.id for one in cells], digest="d", provenance={}, directory=directory)
        prepare_directory(directory, RunIdentity(run=entry.id, experiment=experiment))
        for one in cells:
            store.record(entry.id, one)
        store.finish_run(entry.id, "complete")
        write_results(directory, store.load_run(entry.id))
    return entry.id
