# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a page: valid, whole, with what explains each change, and untrusted text as text."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from golden_page import check_golden_page
from html_checks import Element, check_page
from record_builders import cell, failed
from stored_profiles import profile, record, store_run

from orchestrator.comparison.comparison import ComparedRuns
from orchestrator.library.stored import load_comparison
from orchestrator.pages.comparison_page import MOST_ROWS, comparison_chart, comparison_page
from orchestrator.report.chart import IntervalChart
from orchestrator.report.html import pictures
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import median

MACHINE = "pentium4/debian-686"
HOSTILE = '</pre><script>alert(1)</script><img src="http://x/" onerror=alert(1)>\x1b[31m{{ 7 * 7 }}'


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    return tmp_path / "lab"


def exact(name: str, value: float, **changes: Any) -> CellRecord:
    numbers = {"samples": [value] * 2, "value": value, "overhead": value - 409, "interval": [value - 409] * 2}
    return cell("kprobe", **{"id": f"{MACHINE}/{name}/noop", **numbers, **changes})


def timed(name: str, samples: Sequence[float]) -> CellRecord:
    return exact(name, median(samples), clock="wall", unit="ns", samples=samples)


def compare(folder: Path, before: Sequence[CellRecord], after: Sequence[CellRecord], budgets: str = "") -> ComparedRuns:
    folder.mkdir(exist_ok=True)
    for name, cells in (("one", before), ("two", after)):
        store_run(folder / "lab", folder / name, *cells)
        (folder / name / "experiment.yaml").write_text(f"name: x\n{budgets}")
    return load_comparison([str(folder / name) for name in ("one", "two")], [])


def changes(root: Element) -> dict[str, list[str]]:
    """The list of changes: the figures of each cell, by its name."""
    rows = [element for element in root.all("tr") if "data-cell" in element.attributes]
    return {row.all("th")[0].whole_text: [element.whole_text for element in row.all("td")] for row in rows}


def details(root: Element) -> list[Element]:
    return [element for element in root.all("details") if element.attributes.get("class") == "cell"]


def test_each_change_has_its_figures_and_its_budget(tmp_path: Path) -> None:
    before = [exact("none", 409), exact("kprobe", 1036), exact("djprobe", 462), exact("jprobe", 1689)]
    after = [
        exact("none", 409), exact("kprobe", 1039), exact("djprobe", 460),
        failed("jprobe", "the guest hangs\n" + HOSTILE, id=f"{MACHINE}/jprobe/noop"),
    ]  # fmt: skip
    runs = compare(tmp_path, before, after, 'budgets: {"*": +1}\n')
    page = comparison_page(runs)
    root = check_page(page)
    (verdict,) = [element for element in root.all("strong") if element.attributes.get("class") == "fails"]
    assert verdict.whole_text.startswith("4 cells compared: 1 failed, 1 regressed, 1 improved, 1 unchanged; 2 exceed")
    unit = "instructions"
    assert changes(root) == {
        "jprobe": ["failed", "1689", "failed", "", "", "", unit, "exceeded"],
        "djprobe": ["improved", "462", "460", "-2", "-0.4 %", "-2", unit, "within +1"],
        "kprobe": ["regressed", "1036", "1039", "+3", "+0.3 %", "+3", unit, "exceeds +1"],
    }
    assert "<script>alert" not in page
    assert "{{ 7 * 7 }}" not in page  # of a reason its first line is said
    jprobe, _, kprobe = details(root)
    assert "failed: the guest hangs" in jprobe.whole_text
    assert "Beyond budget: value +3 instructions, allowed +1." in kprobe.whole_text
    (figures,) = kprobe.all("table")
    assert [child.whole_text for child in figures.all("tr")[1].children] == [
        "value",
        "1036",
        "1039",
        "+3",
        "+0.3 %",
        "+1",
        "exceeded",
    ]
    assert "experiment.yaml --only" in kprobe.all("pre")[0].whole_text
    (unchanged,) = [element for element in root.all("section") if element.attributes.get("id") == "unchanged"]
    assert "none" in unchanged.whole_text
    options = {
        element.attributes["name"]: [value.whole_text for value in element.all("option")]
        for element in root.all("select")
    }
    assert options["change"] == ["all", "failed", "improved", "regressed"]


def test_a_comparison_is_as_in_the_golden_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    before = [exact("none", 409), exact("kprobe", 1036), exact("djprobe", 462)]
    after = [exact("none", 409), exact("kprobe", 1039), failed("djprobe", "why", id=f"{MACHINE}/djprobe/noop")]
    runs = compare(tmp_path, before, after, "budgets: {kprobe: +5}\n")
    check_golden_page("comparison", comparison_page(runs), tmp_path)


def test_names_from_elsewhere_are_shown_and_never_obeyed(tmp_path: Path) -> None:
    identity = f"{MACHINE}/kprobe/noop"
    one, other_cell = (
        record(profile(identity, {"<b>entry": count}), "kprobe", tmp_path / name)
        for name, count in (("one", 2), ("two", 3))
    )
    jprobe = {"id": f"{MACHINE}/jprobe/noop"}
    runs = compare(tmp_path, [one, exact("jprobe", 3)], [other_cell, failed("jprobe", HOSTILE, **jprobe)])
    page = comparison_page(runs)
    root = check_page(page)
    assert len(root.all("script")) == 1
    assert root.all("img") == root.all("b") == []
    assert "{{ 7 * 7 }}" in root.whole_text
    assert "<b>entry" in root.whole_text


def test_symbols_explain_a_change(tmp_path: Path) -> None:
    identity = f"{MACHINE}/kprobe/noop"
    executed = {"entry": 40, "handler [lab_kprobe]": 2}
    one, other_cell = (
        record(profile(identity, counts), "kprobe", tmp_path / name)
        for name, counts in (("one", executed), ("two", {**executed, "handler [lab_kprobe]": 5}))
    )
    runs = compare(tmp_path, [one], [other_cell])
    root = check_page(comparison_page(runs))
    (part,) = details(root)
    rows = [[each.whole_text for each in row.children] for row in part.all("tr")]
    assert ["handler [lab_kprobe]", "2", "5", "+3", ""] in rows
    assert "1 symbol is equal in both." in part.whole_text
    names = [f"{run.record.run}:{identity}" for run in (runs.before, runs.after)]
    assert f"orchestrator profile {' '.join(names)} --limit 0" in part.all("pre")[0].whole_text


def test_what_did_not_change_is_named_and_nothing_is_drawn(tmp_path: Path) -> None:
    cells = [exact("none", 409), exact("kprobe", 1036)]
    root = check_page(comparison_page(compare(tmp_path, cells, cells)))
    assert [element.attributes.get("class") for element in root.all("strong")] == ["holds"]
    assert changes(root) == {}
    assert root.all("svg") == root.all("form") == []
    assert [element.whole_text for element in root.all("summary")] == ["2 unchanged"]


def test_the_chart_has_the_changes_with_their_intervals(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    from orchestrator.report.drawing import svg_text

    ten = [float(n) for n in range(10)]
    before = [timed("a", [1000 + n for n in ten]), exact("b", 1000), exact("c", 1000)]
    after = [timed("a", [1100 + n for n in ten]), exact("b", 990), exact("c", 1000)]
    runs = compare(tmp_path, before, after)
    chart = comparison_chart(runs.comparison)
    assert chart is not None
    slower, improved = chart.rows
    assert (slower.label, slower.tone, slower.text) == ("a", "worse", "+10.0 %")
    assert slower.bounds is not None
    assert slower.bounds[0] < slower.value < slower.bounds[1]
    assert (improved.label, improved.tone, improved.bounds, improved.value) == ("b", "better", None, -1.0)
    drawn = svg_text(chart)
    ElementTree.fromstring(drawn)
    assert "+10.0 %" in drawn
    root = check_page(comparison_page(runs))
    (picture,) = root.all("svg")
    assert "with its 95 % interval" in picture.whole_text
    assert re.fullmatch(r"9[0-9.]+ to 1[0-9.]+", changes(root)["a"][5])


def test_a_chart_of_many_changes_stays_legible(tmp_path: Path) -> None:
    from orchestrator.report.drawing import svg_text

    few, many = (
        comparison_chart(
            compare(
                tmp_path / str(count),
                [exact(f"c{n}", 1000) for n in range(count)],
                [exact(f"c{n}", 1001 + n) for n in range(count)],
            ).comparison
        )
        for count in (3, MOST_ROWS + 5)
    )
    assert isinstance(few, IntervalChart)
    assert isinstance(many, IntervalChart)
    assert (len(few.rows), len(many.rows)) == (3, MOST_ROWS)
    assert "5 more in the table" in many.subtitle
    heights = [float((re.search(r'height="([\d.]+)pt"', svg_text(chart)) or [""])[1]) for chart in (few, many)]
    assert heights[0] < 200
    assert heights[1] > 500


def test_without_matplotlib_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    root = check_page(comparison_page(compare(tmp_path, [exact("a", 1)], [exact("a", 2)])))
    assert root.all("svg") == []
    assert pictures.NOT_DRAWN in root.whole_text


def test_many_changes_stay_small(tmp_path: Path) -> None:
    """A thousand changed cells have at most 5 MB."""
    few, many = (
        len(
            comparison_page(
                compare(
                    tmp_path / str(count),
                    [exact(f"c{n}", 1000) for n in range(count)],
                    [exact(f"c{n}", 1001 + n) for n in range(count)],
                )
            )
        )
        for count in (40, 140)
    )
    assert (many - few) / 100 < 5000
    assert few < 200_000
