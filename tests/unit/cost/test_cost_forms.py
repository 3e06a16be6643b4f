# SPDX-License-Identifier: GPL-2.0-only
"""Do forms for other programs read as those take them, and does each cost stand beside its own before?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from record_builders import cell, failed, run

from orchestrator.comparison.comparison import CellPair, compare
from orchestrator.cost.cost_forms import cost_comment, veristat_csv
from orchestrator.cost.costs import Cost, costs_in, explained
from orchestrator.cost.line import CostLine
from orchestrator.cost.reference import check_calls, partner
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import UsageError
from orchestrator.library.cost_page import hits_chart, write_html
from orchestrator.library.measured_costs import MeasuredCosts
from orchestrator.report.html.frame import Page
from orchestrator.report.output import Output
from orchestrator.results.budgets import Budgets
from orchestrator.results.contract import CellRecord, ProfileEvidence
from orchestrator.results.runs import Run

CALL: Mapping[str, object] = {"name": "workload", "file": "/read.c"}


def line(name: str, file: str = "own.bpf.c", call: Mapping[str, object] = CALL) -> CostLine:
    row = f"/{file} program={name}" if name else f"/{file}"
    probe = f"{file}.program-{name}" if name else file
    cells = {"debian-686": f"pentium4/debian-686/{probe}/noop"}
    return CostLine(Subject(row, file, AttachPlace("vfs_read"), name), "vfs_read", call, ("debian-686",), cells=cells)


def without(name: str, reason: str) -> CellRecord:
    return failed("kprobe", reason, probe=name, id=f"pentium4/debian-686/{name}/noop")


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are there."""
    monkeypatch.setattr("orchestrator.catalog.probes.existing_file", lambda name, _: Path(name))


@pytest.mark.usefixtures("file")
def test_each_reason_of_a_comment_has_the_mark_of_its_row(tmp_path: Path) -> None:
    lines = [line("on_open"), line("on_read")]
    cells = [without(f"own.bpf.c.program-{one.subject.name}", f"no {one.subject.name}\nlog `1`") for one in lines]
    whole = run(*cells)
    changes = compare([CellPair(None, one) for one in cells], Budgets.of({}), cells, cells)
    stored = Run(whole, tmp_path)
    text = cost_comment("cost-own", costs_in(lines, whole, changes), (), stored, stored)
    for number, one in enumerate(lines, start=1):
        assert f"\\[{number}\\] no {one.subject.name.replace('_', chr(92) + '_')}\n\n```text\nlog `1`\n```" in text


def measured(name: str, **parameters: Any) -> CellRecord:
    return cell("kprobe", probe=name, id=f"pentium4/debian-686/{name}/noop", parameters=parameters)


@pytest.mark.usefixtures("file")
def test_veristat_reads_what_it_would_write() -> None:
    """It takes numbers alone, and prints 0 of a program that the verifier refuses (parse_stat_value())."""
    lines = [line("on_open"), line("on_read"), line("", "own.ko")]
    cells = [measured("own.bpf.c.program-on_open", bpf_verified=0, bpf_instructions=9, bpf_machine_code_bytes=80)]
    cells += [without("own.bpf.c.program-on_read", "own.bpf.c.program-on_read does not load"), measured("own.ko")]
    found = costs_in(lines, run(*cells), compare([], Budgets.of({}), cells, cells))
    assert veristat_csv(found).splitlines() == [
        "file_name,prog_name,verdict,total_insns,prog_size,prog_size_jited,stack_depth",
        "own.bpf.c,on_open,success,0,9,80,0",
        "own.bpf.c,on_read,failure,0,0,0,0",
    ]
    assert len(veristat_csv(found[2:]).splitlines()) == 1


def test_a_program_stands_beside_the_one_of_its_name_and_a_renamed_one_beside_the_one_in_its_place() -> None:
    before = [line("on_open", "old.bpf.c"), line("on_read", "old.bpf.c")]
    lines = [line("on_open"), line("on_close"), line("on_read")]
    assert [partner(one, lines, before) for one in lines] == [before[0], None, before[1]]
    renamed = [line("on_open"), line("at_read")]
    assert [partner(one, renamed, before) for one in renamed] == before


def test_other_calls_are_refused_before_anything_is_measured() -> None:
    before, other = line("on_read", "old.bpf.c"), line("on_read", call={**CALL, "file": "/write.c"})
    for one in (other, replace(other, benchmark={**CALL, "hits": 2})):
        with pytest.raises(UsageError, match=r"on_read of own\.bpf\.c and on_read of old\.bpf\.c"):
            check_calls(one, partner(one, [one], [before]))


def test_a_cost_that_has_not_changed_is_explained_beside_no_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exceeds a limit all the same: the difference to itself shows nothing."""
    monkeypatch.setattr("orchestrator.cost.costs.load_pair", lambda *pair: [one.probe for _, one in pair])
    monkeypatch.setattr("orchestrator.cost.costs.difference", lambda *both: both)
    cells = []
    for name in ("none", "old.bpf.c.program-on_read", "own.bpf.c.program-on_read"):
        plain = cell("none" if name == "none" else "kprobe", probe=name, id=f"a/b/{name}/noop")
        cells.append(plain.model_copy(update={"profile": cast("Any", ProfileEvidence).model_construct()}))
    pairs = [CellPair(cells[1], cells[2])]
    changes = compare(pairs, Budgets.of({"*": {"overhead": "<=1"}}), cells, cells)
    whole = cast("Run", SimpleNamespace(record=SimpleNamespace(cells=cells), directory=tmp_path))
    found = [Cost(line("on_read").subject, cells[2], None, changes.cells[0])]
    explanations: list[Any] = [both for _, both in explained(found, whole, whole)]
    assert explanations == [("none", cells[2].probe)]


class Written(Output):
    """Keeps the text of a page."""

    made = ""

    @property
    def console(self) -> NoReturn:
        raise AssertionError

    def text(self, text: str) -> None:
        raise AssertionError

    def page(self, make: Callable[[str | None], Page], file: Path) -> None:
        self.made = make(None).text

    def note(self, text: str) -> None:
        raise AssertionError


@pytest.mark.usefixtures("file")
def test_a_page_of_costs_begins_with_hits_and_has_a_chart_of_them_alone(tmp_path: Path) -> None:
    lines = [line("on_open"), line("on_read")]
    cells = [measured(f"own.bpf.c.program-{each.subject.name}") for each in lines]
    stored = run(*cells)
    costs = costs_in(lines, stored, compare([], Budgets.of({}), cells, cells))
    output = Written()
    write_html(MeasuredCosts(costs, (), Run(stored, tmp_path)), output)
    assert output.made.index("on_open") < output.made.index("a hit") < output.made.index("Overhead of probes")
    assert output.made.count("<svg") == 1
    chart = hits_chart(MeasuredCosts(costs, (), Run(stored, tmp_path)))
    assert chart is not None
    assert list(chart.labels) == ["on_open", "on_read"]
    assert hits_chart(MeasuredCosts(costs[:1], (), Run(stored, tmp_path))) is None
