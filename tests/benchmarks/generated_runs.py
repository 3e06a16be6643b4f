# SPDX-License-Identifier: GPL-2.0-only
"""Stored runs of many cells, each as a quickstart's are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import RunIdentity, prepare_directory
from orchestrator.results.store import Store

GUEST = "boot1/guest1-pentium4-debian-686"
Change = Callable[[CellRecord, Path], CellRecord]


def as_it_is(cell: CellRecord, directory: Path) -> CellRecord:
    """The cell itself."""
    return cell


def a_cell(number: int, cost: float) -> CellRecord:
    """A cell as a quickstart's are, of a function of its own."""
    base = 400.0
    return CellRecord.model_validate(
        {
            "id": f"pentium4/debian-686/function{number}/kprobe/noop",
            "cpu": "pentium4",
            "smp": 1,
            "kernel": "debian-686",
            "probe": "kprobe",
            "handler": "noop",
            "benchmark": "syscall",
            "metric": "cost per call",
            "clock": "instructions",
            "unit": "instructions",
            "status": "ok",
            "samples": [cost] * 4,
            "value": cost,
            "overhead": cost - base,
            "interval": [cost - base] * 2,
            "parameters": {"at": f"function{number}", "call": "getpid", "arguments": "[]", "outcome": "always success"},
            "evidence": {
                "mechanism": "int3",
                "probe_bytes": "cc44240453",
                "original_bytes": "8b44240453",
                "hits": 5000,
                "calls": 5000,
                "restored": True,
                "clocksource": "tsc",
                "int3": 10000,
                "address": "0xc1093a15",
                "symbol": f"function{number}+0x5",
                "flag": "",
                "taint": 12288,
                "batches": 4,
                "disturbed": 0,
            },
        }
    )


def store_run(lab: Path, cells: Sequence[CellRecord], change: Change = as_it_is) -> str:
    """A complete run of these cells, with what it was made with and an experiment that names each of its points.

    ``change`` makes the cell that is stored of one, given the run's directory.
    """
    with Store.open(lab) as store:
        entry = store.begin_run("many", [one.id for one in cells], digest="d", provenance={})
        entry.directory.parent.mkdir(exist_ok=True)
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment="many"))
        for cell in cells:
            store.record(entry.id, change(cell, entry.directory))
        store.finish_run(entry.id, "complete")
    modules = {one.id: {"name": "lab_kprobe", "key": "k", "file_sha256": "0" * 64} for one in cells}
    ids = [one.id for one in cells]
    boot = {"name": GUEST, "qemu": ["qemu-system-i386"], "modules": modules, "cells": ids}
    content = {"sessions": [{"qemu": "7.2", "orchestrator": entry.id}], "boots": [boot]}
    (entry.directory / "provenance.json").write_text(json.dumps(content))
    points = ", ".join(str(one.parameters["at"]) for one in cells)
    (entry.directory / "experiment.yaml").write_text(f"name: many\nbudgets: {{'*': +1}}\npoints: [{points}]\n")
    return entry.id


def with_profile(cell: CellRecord, directory: Path) -> CellRecord:
    """The cell with a profile, whose file is written into its run's directory."""
    calls, steps = 500, 20
    functions, rest = divmod(int(cell.value or 0), steps)
    symbols = []
    for number in range(functions + 1):
        code = tuple(InstructionCount(2 * at, "6690", calls) for at in range(steps if number < functions else rest))
        if code:
            symbols.append(
                SymbolProfile(name=f"f{number}", place="kernel", address=4096 + 64 * number, instructions=code)
            )
    made = CellProfile(cell=cell.id, arch="i386", calls=calls, has_details=False, symbols=symbols)
    proof = {
        "sha256": write_profile(made, directory / FOLDER / file_name(cell.id)),
        "calls": calls,
        "instructions": made.executed,
        "int3": 2 * calls,  # as the cell's evidence has it
    }
    return CellRecord.model_validate({**cell.model_dump(), "profile": proof})
