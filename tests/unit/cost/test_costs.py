# SPDX-License-Identifier: GPL-2.0-only
"""Are a run's figures told a hit of each subject and kernel, in every form, with the budgets that they break?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from record_builders import cell, evidence, failed, run

from orchestrator.comparison.comparison import CellPair, compare
from orchestrator.cost.cost_forms import cost_comment, cost_csv, cost_sheet, veristat_csv
from orchestrator.cost.cost_machine import cost_kernel
from orchestrator.cost.costs import Cost, costs_in, verdict
from orchestrator.cost.costs_json import PrintedCost, PrintedCosts
from orchestrator.cost.line import CostLine
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.results.budgets import Budgets
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

KERNELS = ("debian-686", "debian-amd64", "debian-amd64@6.12", "debian-amd64@7.3")
SIZES = {"bpf_verified": 36, "bpf_instructions": 37, "bpf_machine_code_bytes": 190, "bpf_stack_bytes": 24}


@pytest.fixture
def line(tmp_path: Path) -> CostLine:
    """A program of a BPF file."""
    return program(tmp_path, "on_read")


def program(folder: Path, name: str, file: str = "own.bpf.c") -> CostLine:
    (folder / file).touch()
    place = AttachPlace("vfs_read")
    subject = Subject(f"{folder / file} program={name}", file, place, name, "bpf-kprobe")
    cells = {kernel: f"xeon-e5410/{cost_kernel(kernel).name}/{file}.program-{name}/noop" for kernel in KERNELS}
    return CostLine(subject, "vfs_read", {"name": "workload", "file": "/read.c"}, KERNELS, cells=cells)


def measured(overhead: float, /, name: str = "own.bpf.c.program-on_read", hits: int = 1, **changes: Any) -> CellRecord:
    """A program's cell; a call hits it so many times."""
    kernel = str(changes.get("kernel", "debian-amd64"))
    of_program: dict[str, Any] = {
        "id": f"xeon-e5410/{kernel}/{name}/noop",
        "cpu": "xeon-e5410",
        "kernel": kernel,
        "probe": name,
        "samples": [670 + overhead] * 2,
        "value": 670 + overhead,
        "overhead": overhead,
        "interval": [overhead, overhead],
        "parameters": SIZES,
        "evidence": evidence("kprobe", mechanism="own", hits=1000 * hits, calls=1000, hits_per_call=hits),
    }
    return cell("kprobe", **{**of_program, **changes})


def without_number(status: str, reason: str, kernel: str = "debian-amd64") -> CellRecord:
    own_cell = measured(0, kernel=kernel)
    kept = {key: getattr(own_cell, key) for key in ("id", "cpu", "kernel", "probe")}
    return failed("kprobe", reason, status=status, **kept)


def found(
    lines: Sequence[CostLine], cells: Sequence[CellRecord], budgets: Mapping[str, object] | None = None
) -> Sequence[Cost]:
    """The costs of a run's cells beside their budgets."""
    pairs = [CellPair(None, one) for one in cells]
    return costs_in(lines, run(*cells), compare(pairs, Budgets.of(budgets or {}), cells, cells))


def shown(some: Sequence[Cost]) -> list[list[str]]:
    """The table's heading and rows, without what is empty."""
    grid = cost_sheet("cost-own", some).grid
    return [["", *grid.headings], *([row.label, *row.cells] for row in grid.blocks[0])]


# --- figures --------------------------------------------------------------------------------------


def test_a_row_has_the_cost_of_a_hit_and_what_is_known_of_the_program(line: CostLine) -> None:
    (cost,) = found([line], [measured(596)])
    assert (cost.hit, cost.hits, cost.mechanism, cost.exceeded, cost.allowed) == (596, 1000, "bpf-kprobe", (), "")
    assert PrintedCost.of(cost).model_dump() == {
        "subject": "own.bpf.c",
        "program": "on_read",
        "kernel": "debian-amd64",
        "cell": "xeon-e5410/debian-amd64/own.bpf.c.program-on_read/noop",
        "status": "ok",
        "reason": None,
        "instructions": 596,
        "interval": [596, 596],
        "instructions_when_full": None,
        "change": None,
        "function": None,
        "alone": None,
        "mechanism": "bpf-kprobe",
        "hits": 1000,
        "hits_per_call": 1,
        "nanoseconds": None,
        "nanoseconds_from": None,
        "nanoseconds_to": None,
        "verified": 36,
        "program_instructions": 37,
        "machine_code_bytes": 190,
        "stack_bytes": 24,
        "machine_instructions": None,
        "executed_instructions": None,
        "lines": None,
        "executed_lines": None,
        "leaves_at": None,
        "programs": [],
        "map_states": None,
        "exceeded": [],
        "notes": [],
        "new": None,
        "unknown": None,
    }


def test_what_a_call_adds_is_divided_among_its_hits(line: CostLine) -> None:
    (cost,) = found([line], [measured(1200, hits=3, interval=[1170, 1230])], {"*": {"overhead": "<=900"}})
    assert (cost.hit, cost.hits, PrintedCost.of(cost).model_dump()["interval"]) == (400, 3000, [390, 410])
    assert cost.allowed == "<=300"
    assert cost.exceeded


def test_a_hit_that_finds_its_buffer_full_has_a_figure_of_its_own(line: CostLine) -> None:
    said = "a hit that finds records full takes 111 instructions less"
    facts = {**SIZES, "bpf_full": said, "bpf_full_saves": 222}
    (cost,) = found([line], [measured(670, hits=2, parameters=facts)])
    assert (cost.hit, cost.when_full, cost.notes) == (335, 224, [])
    assert PrintedCost.of(cost).model_dump()["instructions_when_full"] == 224
    (row,) = csv.DictReader(io.StringIO(cost_csv([cost])))
    assert row["instructions_when_full"] == "224.0"
    assert "full" in cost_sheet("cost-own", [cost]).grid.headings
    why = "of a hit that finds records full there is no number: calls vary then, and do not where it has room"
    (without,) = found([line], [measured(335, parameters={**SIZES, "bpf_full": why})])
    assert (without.when_full, without.notes) == (None, [why])
    assert "full" not in cost_sheet("cost-own", [without]).grid.headings


def test_costs_are_in_the_order_of_lines_and_kernels(tmp_path: Path) -> None:
    lines = [program(tmp_path, name) for name in ("on_read", "on_open")]
    cells = [
        measured(1, name="own.bpf.c.program-on_open"),
        measured(2, kernel="debian-amd64"),
        measured(3, kernel="debian-amd64@6.12"),
        cell("none", id="d"),
    ]
    assert [(cost.subject.name, cost.hit) for cost in found(lines, cells)] == [
        ("on_read", 2),
        ("on_read", 3),
        ("on_open", 1),
    ]


# --- forms ----------------------------------------------------------------------------------------


def test_the_table_has_only_columns_with_something_in_them(line: CostLine) -> None:
    assert shown(found([line], [measured(596)])) == [
        ["", "a hit", "mechanism", "hits", "verified", "size", "stack"],
        ["on_read", "596", "bpf-kprobe", "1000", "36", "37", "24"],
    ]
    assert shown(found([line], [measured(596, parameters={})]))[0] == ["", "a hit", "mechanism", "hits"]


def test_several_kernels_are_rows_below_a_program(line: CostLine) -> None:
    cells = [measured(596), measured(610, kernel="debian-amd64@6.12")]
    titles = [(row[0], row[1]) for row in shown(found([line], cells))]
    assert titles == [("", "a hit"), ("on_read", ""), ("debian-amd64", "596"), ("debian-amd64@6.12", "610")]


def test_what_failed_or_is_unsupported_says_why_once(line: CostLine) -> None:
    cells = [
        without_number("failed", "the verifier refuses it"),
        without_number("unsupported", "it needs fprobes", "debian-amd64@6.12"),
        without_number("failed", "the verifier refuses it", "debian-amd64@7.3"),
    ]
    some = found([line], cells)
    assert [row[1] for row in shown(some)[2:]] == ["failed [1]", "unsupported [2]", "failed [1]"]
    notes = cost_sheet("cost-own", some).footnotes
    assert [(note.mark, note.text) for note in notes] == [(1, "the verifier refuses it"), (2, "it needs fprobes")]
    assert verdict(some) == "❌ 2 of 3 costs could not be proved."


def test_what_was_done_with_maps_is_a_footnote_of_the_row(line: CostLine) -> None:
    said = "reads has 10240 entries by the lab: the source gives no max_entries"
    both = found(
        [line],
        [
            measured(149, parameters=SIZES | {"bpf_sized": said}),
            without_number("failed", "it failed", "debian-amd64@6.12"),
        ],
    )
    assert [row[1] for row in shown(both)[2:]] == ["149 [2]", "failed [1]"]
    notes = [(note.mark, note.text, note.failure) for note in cost_sheet("cost-own", both).footnotes]
    assert notes == [(1, "it failed", True), (2, said, False)]
    assert [PrintedCost.of(cost).model_dump()["notes"] for cost in both] == [[said], []]
    assert [row["notes"] for row in csv.DictReader(io.StringIO(cost_csv(both)))] == [said, ""]


def test_a_cost_beyond_its_budget_is_told(line: CostLine) -> None:
    some = found([line], [measured(596)], {"*": {"overhead": "<=400"}})
    assert some[0].exceeded == ("overhead 596 instructions, allowed <=400",)
    sheet = cost_sheet("cost-own", some)
    assert sheet.sentences[-1] == "on_read on debian-amd64: overhead 596 instructions, allowed <=400."
    assert [row.style for row in sheet.grid.blocks[0]] == ["red"]
    assert verdict(some) == "❌ 1 of 1 cost exceeds what is allowed."
    assert not found([line], [measured(400)], {"*": {"overhead": "<=400"}})[0].exceeded


def test_an_overhead_without_a_verdict_is_no_cost(line: CostLine) -> None:
    why = "no verdict: the overhead lies between -64 and -12 instructions"
    undecided = measured(-16, interval=(-64.0, -12.0), verdict="none", notes=(why,))
    some = found([line], [undecided])
    assert (some[0].hit, some[0].reason, PrintedCost.of(some[0]).model_dump()["instructions"]) == (None, why, None)
    assert shown(some)[1][1] == "no verdict [1]"
    assert verdict(some).startswith("❌ 1 of 1 cost")


def test_the_verdict_counts_what_was_measured(line: CostLine) -> None:
    lacking = without_number("unsupported", "it needs fprobes", "debian-amd64@6.12")
    assert verdict(found([line], [measured(596)])) == "✅ 1 cost measured, none exceeds what is allowed."
    some = found([line], [measured(596), lacking])
    assert verdict(some) == "✅ 1 cost measured, none exceeds what is allowed; 1 unsupported."
    assert verdict(found([line], [lacking])) == "❌ No cost could be measured."


def test_json_and_csv_have_the_same_figures(line: CostLine) -> None:
    cells = [measured(596), without_number("failed", 'said "no", twice', "debian-amd64@7.3")]
    some = found([line], cells, {"*": {"overhead": "<=400"}})
    as_json = json.loads(PrintedCosts.of(run(*cells), some).json_text())
    assert as_json["costs"] == [PrintedCost.of(cost).model_dump() for cost in some]
    assert as_json["run"] == run(*cells).run
    rows = list(csv.DictReader(io.StringIO(cost_csv(some))))
    assert [row["instructions"] for row in rows] == ["596.0", ""]
    assert rows[0]["interval"] == "596.0 596.0"
    assert rows[0]["exceeded"] == "overhead 596 instructions, allowed <=400"
    assert rows[1]["reason"] == 'said "no", twice'
    assert list(rows[0]) == list(PrintedCost.of(some[0]).model_dump())


def test_veristat_has_its_columns_and_the_kernel_if_there_are_several(line: CostLine) -> None:
    own_cell = measured(596)
    assert veristat_csv(found([line], [own_cell])).splitlines() == [
        "file_name,prog_name,verdict,total_insns,prog_size,prog_size_jited,stack_depth",
        "own.bpf.c,on_read,success,36,37,190,24",
    ]
    refusal = "the verifier refuses own.bpf.c.program-on_read: R1 invalid mem access\n0: (85) call bpf_x"
    lines = veristat_csv(found([line], [own_cell, without_number("failed", refusal, "debian-amd64@7.3")])).splitlines()
    assert lines[1:] == [
        "own.bpf.c@debian-amd64,on_read,success,36,37,190,24",
        "own.bpf.c@debian-amd64@7.3,on_read,failure,0,0,0,0",
    ]


@pytest.mark.parametrize(
    ("reason", "verdicts"),
    [
        ("own.bpf.c.program-on_read does not load\nlibbpf: failed to load object", ["failure"]),
        ("own.bpf.c.program-on_read cannot be attached\nlibbpf: -ENOENT", []),
        ("hit 0 times by 1000 calls", []),
    ],
)
def test_veristat_s_failure_is_of_a_program_that_did_not_load(line: CostLine, reason: str, verdicts: list[str]) -> None:
    rows = csv.DictReader(io.StringIO(veristat_csv(found([line], [without_number("failed", reason)]))))
    assert [row["verdict"] for row in rows] == verdicts


def test_veristat_s_program_was_loaded_on_kernels_that_count_no_verified_instructions(line: CostLine) -> None:
    """Before Linux 5.16, commit aba64c7da983."""
    own_cell = measured(596, parameters={name: size for name, size in SIZES.items() if name != "bpf_verified"})
    assert veristat_csv(found([line], [own_cell])).splitlines()[1] == "own.bpf.c,on_read,success,0,37,190,24"


def test_a_comment_can_be_found_again_and_has_verdict_table_and_reasons(line: CostLine, tmp_path: Path) -> None:
    cells = [measured(596), without_number("failed", "the verifier <refuses> it", "debian-amd64@7.3")]
    own_run = Run(run(*cells), tmp_path)
    lines = cost_comment("cost-own", found([line], cells), (), own_run, own_run).splitlines()
    assert lines[0] == "<!-- probe-lab: cost-own -->"
    assert lines[2] == "**❌ 1 of 2 costs could not be proved.**"
    assert any(line.startswith("| ") and " 596 " in line for line in lines)
    assert any("the verifier &lt;refuses&gt; it" in line for line in lines)
    assert lines[-1].startswith(f"<sub>run {own_run.record.run}")
