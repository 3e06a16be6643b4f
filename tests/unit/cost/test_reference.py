# SPDX-License-Identifier: GPL-2.0-only
"""Is what has no number before never a pass, unless it is new, and is what is new, renamed or gone said?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from record_builders import cell, evidence, failed, run

from orchestrator.cost.cost_forms import cost_comment, cost_sheet
from orchestrator.cost.cost_machine import cost_kernel
from orchestrator.cost.costs import Cost, judged, problem, verdict
from orchestrator.cost.costs_json import PrintedCosts
from orchestrator.cost.line import CostLine
from orchestrator.cost.reference import Reference, ReferenceLines, by_ids, by_lines
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.cost.unreached import UnreachedSubject
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

CALL = {"name": "syscall", "call": "read"}
BUDGETS = 'budgets: {"*": {overhead: "+0"}}\n'


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are there."""
    monkeypatch.setattr("orchestrator.catalog.probes.existing_file", lambda name, _: Path(name))


def line(name: str, file: str = "own.bpf.c", **call: Any) -> CostLine:
    subject = Subject(f"/{file} program={name}", file, AttachPlace("vfs_read"), name)
    cells = {"debian-686": f"a/debian-686/{file}.program-{name}/noop"}
    return CostLine(subject, "vfs_read", {**CALL, **call}, ("debian-686",), cells=cells)


def measured(name: str, overhead: float = 100.0, file: str = "own.bpf.c", **changes: Any) -> CellRecord:
    probe = f"{file}.program-{name}"
    proof = evidence("kprobe", mechanism="own", hits=1000, calls=1000)
    figures = {"value": 500 + overhead, "samples": [500 + overhead] * 2, "overhead": overhead}
    interval = {"interval": [overhead, overhead], "evidence": proof}
    return cell("kprobe", probe=probe, id=f"a/debian-686/{probe}/noop", **{**figures, **interval, **changes})


def without_baseline(name: str) -> CellRecord:
    return measured(name).model_copy(update={"overhead": None, "interval": None})


def without(name: str, reason: str, status: str = "failed") -> CellRecord:
    probe = f"own.bpf.c.program-{name}"
    return failed("kprobe", reason, probe=probe, id=f"a/debian-686/{probe}/noop", status=status)


def stored(folder: Path, *cells: CellRecord, unfinished: int = 0) -> Run:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(BUDGETS)
    return Run(run(*cells), folder, unfinished)


def against(
    tmp_path: Path,
    before: Sequence[CellRecord],
    lines: Sequence[CostLine],
    lines_before: Sequence[CostLine],
    *now: CellRecord,
    missed: Sequence[UnreachedSubject] = (),
) -> tuple[Sequence[Cost], Reference]:
    old, after = stored(tmp_path / "before", *before), stored(tmp_path / "after", *now)
    reference = by_lines("main", old, lines, ReferenceLines(lines_before, missed=missed), after)
    return judged(lines, after, reference), reference


def sentences(costs: Sequence[Cost], reference: Reference) -> str:
    return " ".join(cost_sheet("cost-own", costs, (), reference.gone).sentences)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (without("on_read", "folder does not build\nlog"), "at main it failed: folder does not build."),
        (without("on_read", "interrupted", "skipped"), "at main it was skipped: interrupted."),
        (without_baseline("on_read"), "at main it has no cost: its baseline has no number."),
        (measured("on_read", clock="wall", unit="ns"), "different clocks: wall and instructions."),
    ],
)
def test_what_had_no_number_or_another_is_no_pass_in_any_form(tmp_path: Path, before: CellRecord, said: str) -> None:
    lines = [line("on_read"), line("on_open")]
    now = [measured("on_read"), measured("on_open")]
    costs, reference = against(tmp_path, [before, measured("on_open")], lines, lines, *now)
    after = stored(tmp_path / "after", *now)
    assert problem(costs) == "1 of 2 costs could not be compared."
    assert f"on_read on debian-686 is not compared: {said}" in sentences(costs, reference)
    whole = json.loads(PrintedCosts.of(after.record, costs, (), reference).json_text())
    assert (whole["passes"], whole["verdict"]) == (False, "1 of 2 costs could not be compared.")
    assert whole["costs"][0]["unknown"] in said + "."
    comment = cost_comment("cost-own", costs, (), after, after, reference.gone)
    assert "❌ 1 of 2 costs could not be compared." in comment
    assert [row.cells[1] for row in cost_sheet("cost-own", costs).grid.blocks[0]] == ["unknown", "0"]


def test_new_programs_are_judged_by_their_own_limit_alone(tmp_path: Path) -> None:
    lines = [line("on_read"), line("on_write")]
    costs, reference = against(
        tmp_path, [measured("on_read")], lines, lines[:1], measured("on_read"), measured("on_write")
    )
    assert verdict(costs) == "✅ 2 costs measured, none exceeds what is allowed; 1 new."
    assert "on_write is new: main has no on_write of own.bpf.c." in sentences(costs, reference)
    (tmp_path / "after" / "experiment.yaml").write_text('budgets: {"*": {overhead: "<=99"}}\n')
    after = Run(run(measured("on_read"), measured("on_write")), tmp_path / "after", 0)
    assert problem(judged(lines, after, reference)) == "2 of 2 costs exceed what is allowed."


def test_what_was_unsupported_is_new(tmp_path: Path) -> None:
    lines = [line("on_read")]
    costs, reference = against(
        tmp_path, [without("on_read", "no fprobes", "unsupported")], lines, lines, measured("on_read")
    )
    assert not problem(costs)
    assert "on_read is new: at main it was unsupported: no fprobes." in sentences(costs, reference)


def test_a_program_that_other_calls_hit_is_new_and_not_gone(tmp_path: Path) -> None:
    lines, before = [line("on_read")], [line("on_read", call="pread64")]
    costs, reference = against(tmp_path, [measured("on_read")], lines, before, measured("on_read", 900))
    assert not problem(costs)
    assert "on_read is new: at main it is hit by other calls, at vfs_read." in sentences(costs, reference)
    assert reference.gone == []


def sized(name: str, verified: int, overhead: float = 100.0, instructions: int = 9) -> CellRecord:
    return measured(
        name,
        overhead,
        parameters={"bpf_section": "fentry/vfs_read", "bpf_verified": verified, "bpf_instructions": instructions},
    )


def test_a_renamed_program_keeps_its_gate(tmp_path: Path) -> None:
    lines, before = [line("on_open"), line("new_name")], [line("old_name"), line("on_open")]
    now = [sized("on_open", 9), sized("new_name", 9, 101)]
    costs, reference = against(tmp_path, [sized("old_name", 9), sized("on_open", 9)], lines, before, *now)
    assert problem(costs) == "1 of 2 costs exceeds what is allowed."
    assert reference.gone == ["new_name is compared with old_name, which is in its place at main."]


@pytest.mark.parametrize("size", [{"verified": 8}, {"verified": 9, "instructions": 8}])
def test_a_program_of_another_size_is_new_and_not_renamed(tmp_path: Path, size: dict[str, int]) -> None:
    lines, before = [line("reads"), line("fresh")], [line("reads"), line("opens")]
    cells = [sized("reads", 9), sized("opens", 9)]
    costs, reference = against(tmp_path, cells, lines, before, sized("reads", 9), sized("fresh", overhead=900, **size))
    assert [cost.new for cost in costs] == ["", "main has no fresh of own.bpf.c"]
    assert reference.gone == ["main has opens of own.bpf.c, which is gone."]


def elsewhere(request: CostLine) -> CostLine:
    """The line with its program at another place, which the same calls pass."""
    return replace(request, subject=replace(request.subject, place=AttachPlace("ksys_read")))


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ([line("reads"), line("fresh")], [line("reads"), elsewhere(line("opens"))]),
        ([line("reads"), line("fresh")], [line("reads"), line("opens", call="pread64")]),
        ([line("reads"), line("fresh")], [line("reads"), line("opens"), line("closes")]),
        ([line("fresh"), line("newest")], [line("opens"), line("closes")]),
    ],
)
def test_a_program_at_another_place_or_among_several_is_new(
    tmp_path: Path, now: Sequence[CostLine], before: Sequence[CostLine]
) -> None:
    cells = [[sized(request.subject.name, 9) for request in lines] for lines in (before, now)]
    costs, reference = against(tmp_path, cells[0], now, before, *cells[1])
    assert all(cost.new for cost in costs if cost.subject.name != "reads")
    gone = [request.subject.name for request in before if request.subject.name != "reads"]
    assert reference.gone == [f"main has {name} of own.bpf.c, which is gone." for name in gone]


def missed(request: CostLine, what: str) -> UnreachedSubject:
    kernel = cost_kernel(request.kernels[0])
    return UnreachedSubject(request.subject, kernel, UsageError(what, where=request.subject.title))


def test_what_no_call_hits_at_the_reference_is_unknown_and_not_new(tmp_path: Path) -> None:
    lines = [line("on_read"), line("on_write")]
    now = [measured("on_read"), measured("on_write", 900)]
    error = missed(lines[1], "no known call enters it")
    costs, reference = against(tmp_path, [measured("on_read")], lines, lines[:1], *now, missed=[error])
    assert problem(costs) == "1 of 2 costs could not be compared."
    said = "on_write on debian-686 is not compared: at main it could not be measured: no known call enters it."
    assert said in sentences(costs, reference)
    assert reference.gone == []
    assert [cost.new for cost in costs] == ["", ""]


def test_what_no_call_hits_on_one_kernel_is_unknown_there_alone(tmp_path: Path) -> None:
    kernels = ("debian-686", "debian-amd64")
    ids = {kernels[0]: line("on_read").cells[kernels[0]], kernels[1]: "a/debian-amd64/own/noop"}
    lines = [replace(line("on_read"), kernels=kernels, cells=ids)]
    error = missed(replace(lines[0], kernels=kernels[1:]), "no known call enters it")
    now = [measured("on_read"), measured("on_read")]
    now[1] = now[1].model_copy(update={"kernel": "debian-amd64", "id": "a/debian-amd64/own/noop"})
    costs, _ = against(tmp_path, now[:1], lines, [line("on_read")], *now, missed=[error])
    assert [cost.unknown for cost in costs] == ["", "at main it could not be measured: no known call enters it"]


def test_a_reference_whose_run_lacks_a_cell_is_unknown(tmp_path: Path) -> None:
    lines = [line("on_read"), line("on_write")]
    costs, _ = against(tmp_path, [measured("on_read")], lines, lines, measured("on_read"), measured("on_write", 900))
    assert costs[1].unknown == "at main it could not be measured: its run has no such cell"


def test_an_increase_without_a_verdict_is_no_pass(tmp_path: Path) -> None:
    """A figure that may as well be none is below any figure: no increase over it can exceed a budget."""
    note = "no verdict: an interval of -40 to 20"
    before = measured("on_read", interval=[-40, 20], samples=[590, 610], verdict="none", notes=[note])
    lines = [line("on_read")]
    costs, _ = against(tmp_path, [before], lines, lines, measured("on_read", 900))
    assert problem(costs) == "1 of 1 cost could not be compared."
    assert costs[0].unknown.startswith("no verdict")


def test_a_new_program_is_not_taken_for_a_renamed_one_of_another_file(tmp_path: Path) -> None:
    lines = [line("on_read"), line("on_write"), line("new_name", "renamed.bpf.c")]
    before = [line("on_read"), line("old_name", "renamed.bpf.c")]
    now = [measured("on_read"), measured("on_write"), measured("new_name", file="renamed.bpf.c")]
    cells = [measured("on_read"), measured("old_name", file="renamed.bpf.c")]
    costs, reference = against(tmp_path, cells, lines, before, *now)
    assert [(cost.difference, cost.new) for cost in costs] == [
        (0, ""),
        (None, "main has no on_write of own.bpf.c"),
        (0, ""),
    ]
    assert reference.gone == ["new_name is compared with old_name, which is in its place at main."]


def test_a_reference_that_could_not_be_measured_at_all(tmp_path: Path) -> None:
    after = stored(tmp_path, measured("on_read"))
    reference = Reference("main", trouble="own.bpf.c:4: it does not compile")
    costs = judged([line("on_read")], after, reference)
    assert problem(costs) == "1 of 1 cost could not be compared."
    assert costs[0].unknown == "main could not be measured: own.bpf.c:4: it does not compile"


def test_a_stored_run_that_lacks_a_cell_or_was_interrupted(tmp_path: Path) -> None:
    lines = [line("on_read"), line("on_write")]
    after = stored(tmp_path / "after", measured("on_read"), measured("on_write"))
    whole = stored(tmp_path / "before", measured("on_read"), measured("on_close"))
    reference = by_ids(whole, lines, after)
    costs = judged(lines, after, reference)
    assert [cost.new for cost in costs] == ["", f"run {whole.record.run} has no such cell"]
    assert not problem(costs)
    assert [sentence for sentence in reference.gone if "on_close" in sentence] == list(reference.gone)
    cut = stored(tmp_path / "before", measured("on_read"), unfinished=1)
    assert problem(judged(lines, after, by_ids(cut, lines, after))) == "1 of 2 costs could not be compared."


def test_a_cost_without_a_baseline_is_not_proved(tmp_path: Path) -> None:
    after = stored(tmp_path, without_baseline("on_read"), measured("on_open"))
    assert problem(judged([line("on_read"), line("on_open")], after)) == "1 of 2 costs could not be proved."
