# SPDX-License-Identifier: GPL-2.0-only
"""Does each case of ``cases`` give its numbers, proved, or its reasons, and is nothing left in the guest afterwards?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from experiment_boot import boot_of_calls, measured_call, prepared_for
from measured_cases import FOLDERS, ExpectedCell, Texts, TriedCase, differences, selected, tried_cases
from static_programs import compile_program

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.call_programs import COUNTED_CALLS
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes
from orchestrator.errors import LabError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

PINS = "/sys/fs/bpf"


@pytest.mark.parametrize("tried", list(tried_cases()))
def test_case(ready: ReadyGuest, workshop: BuildContext, tried: TriedCase, tmp_path: Path) -> None:
    folders = {**FOLDERS, **compiled(workshop, tried, tmp_path)}
    boot = boot_of_calls(**tried.described(folders))
    ready = prepared_for(ready, workshop, boot)
    cells = {cell.id.split("/", 2)[2]: cell for cell in boot.cells}
    expected = expected_cells(tried.expected(folders), list(cells))
    assert {name for name, cell in cells.items() if cell.probe != "none"} <= expected.keys()
    outcomes = {name: outcome(ready, cells[name]) for name in cells if name in expected}
    for name, measured in outcomes.items():
        check(cells[name], expected[name], measured)
    for names in tried.case.cheapest_first:
        values = [value_of(outcomes, name) for name in names]
        assert values == sorted(set(values)), names
    for names in tried.case.equal:
        assert len({value_of(outcomes, name) for name in names}) == 1, names
    check_nothing_is_left(ready.guest)


def compiled(context: BuildContext, tried: TriedCase, folder: Path) -> Mapping[str, str]:
    """The case's own programs, by what stands for their paths."""
    arch = kernels()[tried.guest.kernel].arch
    for name, source in tried.case.compiled.items():
        compile_program(context, arch, Path(FOLDERS["workloads"]) / source, folder / name)
    return {name: str(folder / name) for name in tried.case.compiled}


def expected_cells(patterns: Mapping[str, ExpectedCell], names: Sequence[str]) -> Mapping[str, ExpectedCell]:
    """What is expected of each cell: the last pattern that names it decides. Each pattern names one."""
    expected: dict[str, ExpectedCell] = {}
    for pattern, cell in patterns.items():
        chosen = selected(pattern, names)
        assert chosen, f"no cell is {pattern}; there are {', '.join(names)}"
        expected |= dict.fromkeys(chosen, cell)
    return expected


def outcome(ready: ReadyGuest, cell: CallCell) -> CellRecord | LabError:
    try:
        return measured_call(ready, cell)
    except LabError as error:
        return error


def check(cell: CallCell, expected: ExpectedCell, outcome: CellRecord | LabError) -> None:
    if isinstance(outcome, LabError):
        assert expected.status == "failed", (cell.id, str(outcome))
        assert isinstance(expected.failed, Texts)
        assert expected.failed.lacking(str(outcome)) == [], str(outcome)
        return
    assert (outcome.status, expected.status) == (expected.status, expected.status), (cell.id, outcome.reason)
    for texts in filter(None, (expected.failed, expected.unsupported)):
        assert texts.lacking(outcome.reason or "") == [], outcome.reason
    if expected.ok is not None:
        check_proof(cell, outcome)
        assert list(differences(dict(expected.ok), outcome.model_dump(mode="json"))) == [], cell.id


def check_proof(cell: CallCell, record: CellRecord) -> None:
    """What is true of each number: as many hits as calls make, and the point is as it was before."""
    evidence = record.evidence
    assert evidence is not None
    assert record.metric != "cost per call" or len(set(record.samples)) == 1, record.samples
    if cell.probe == "none":
        assert evidence.probe_bytes == evidence.original_bytes
        return
    assert evidence.restored
    assert evidence.mechanism != "int3" or evidence.probe_bytes == "cc" + evidence.original_bytes[2:]
    assert evidence.hits == evidence.calls * evidence.hits_per_call
    assert record.metric != "cost per call" or evidence.calls == COUNTED_CALLS
    kind = probes().get(cell.probe)
    if kind is not None:
        assert evidence.mechanism == kind.mechanism
        assert evidence.int3 in (None, evidence.hits * (kind.int3_per_hit or 0))
        assert evidence.recorded == (evidence.hits * kind.runs if cell.handler == "record" else None)


def value_of(outcomes: Mapping[str, CellRecord | LabError], pattern: str) -> float:
    """The value of the only cell that a pattern names."""
    (name,) = selected(pattern, list(outcomes))
    record = outcomes[name]
    assert isinstance(record, CellRecord), str(record)
    assert record.value is not None
    return record.value


def check_nothing_is_left(guest: Guest) -> None:
    guest.check_console()
    assert guest.get(KPROBES_LIST) == b""
    assert "lab_" not in guest.get("/proc/modules").decode()
    if "bpf" in guest.get("/proc/mounts").decode():
        assert guest.succeed(["ls", PINS]).text == ""
