# SPDX-License-Identifier: GPL-2.0-only
"""A store as a site: what its pages say, and that all links lead somewhere."""

from __future__ import annotations

import csv
import io
import random
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from html_checks import Element
from record_builders import cell
from report_text import check_golden
from stored_histories import KPROBE, NEEDS_RUPTURES, counted, store_days, timed
from stored_sites import checked, files, one_more_day, outline, site_of, six_days
from test_html_page import HOSTILE, kept_run

from orchestrator.pages import run_page
from orchestrator.pages.site.building import MOST_STEPS, metric_file, run_file
from orchestrator.results.cost_history import Metric
from orchestrator.results.store import FILE_NAME, Store

KPROBE_PAGE = metric_file(Metric("quickstart", KPROBE))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def table(page: Element, name: str) -> list[list[str]]:
    """The rows of the table with this id."""
    (element,) = [one for one in page.all("table") if one.attributes.get("id") == name]
    return [[child.whole_text for child in row.children] for body in element.all("tbody") for row in body.all("tr")]


def links(page: Element) -> Mapping[str, str]:
    return {element.whole_text: element.attributes["href"] for element in page.all("a")}


def test_a_small_site_is_as_in_the_golden_file(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    with Store.open(lab) as store:
        store.set_baseline("before-the-patch", runs[1])
    built = site_of(lab, site)
    pages = checked(site)
    shown = [path for path in pages if not path.startswith("runs/")]
    lines = [line for path in shown for line in (f"===== {path}", *outline(pages[path].all("body")[0]))]
    check_golden("site.txt", "\n".join(lines) + "\n")
    assert (built.pages, built.written, built.removed, built.index) == (11, 11, 0, site / "index.html")
    assert set(pages) | {KPROBE_PAGE.replace(".html", ".csv")} < set(files(site))


def test_a_cell_leads_to_its_history_and_back(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    site_of(lab, site)
    pages = checked(site)
    run = pages[run_file(runs[2])]
    assert [element.attributes["href"] for element in run.all("a")].count(f"../{KPROBE_PAGE}") == 1
    assert links(run)["Earlier run"] == f"../{run_file(runs[1])}"
    assert "Earlier run" not in links(pages[run_file(runs[0])])
    assert links(pages[KPROBE_PAGE])[runs[2]] == f"../../{run_file(runs[2])}"


def test_a_run_that_still_runs_is_shown_as_such(lab: Path, site: Path) -> None:
    run = one_more_day(lab)
    with Store.open(lab) as store, store.working_on(run):
        site_of(lab, site)
    pages = checked(site)
    assert "The run was still running when this page was made." in pages[run_file(run)].whole_text
    assert table(pages["index.html"], "run-list")[0][3:8] == ["running", "1", "0", "0", "1"]
    # Its kprobe has no outcome yet.
    assert KPROBE_PAGE not in pages
    assert "../metrics/" in str(links(pages[run_file(run)]))
    # Its process ends without a word to the store.
    site_of(lab, site)
    pages = checked(site)
    assert "The run was interrupted." in pages[run_file(run)].whole_text
    assert table(pages["index.html"], "run-list")[0][3] == "interrupted"


def test_a_run_whose_directory_is_gone_has_what_the_store_has(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    shutil.rmtree(lab / "runs")
    site_of(lab, site)
    pages = checked(site)
    assert [row[0] for row in table(pages[run_file(runs[0])], "cell-list")] == [cell("none").id, KPROBE]
    assert "2 runs" not in pages[KPROBE_PAGE].whole_text
    # What is left of the first step's causes is what the store has of the tools.
    assert "The provenance of both runs is equal, as far as it was recorded." in pages[KPROBE_PAGE].whole_text


def test_a_long_history_is_bounded_and_whole_in_the_table_beside_it(lab: Path, site: Path) -> None:
    store_days(lab, [counted(1000 + day) for day in range(130)])
    site_of(lab, site, 5)
    page = checked(site)[KPROBE_PAGE]
    assert len(table(page, "run-list")) == 100
    assert "below are the newest 100 of 130" in page.whole_text
    assert len([element for element in page.all("div") if element.attributes.get("class") == "step"]) == MOST_STEPS
    assert "79 earlier steps" in page.whole_text
    rows = list(csv.DictReader(io.StringIO(files(site)[KPROBE_PAGE.replace(".html", ".csv")])))
    assert [float(row["value"]) for row in rows] == [1000 + day for day in range(130)]


def test_only_the_newest_runs_have_a_page_where_that_is_asked_for(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    site_of(lab, site, 2)
    pages = checked(site)
    assert {path for path in pages if path.startswith("runs/")} == {run_file(run) for run in runs[4:]}
    assert len(table(pages["runs.html"], "run-list")) == 6
    assert len(table(pages[KPROBE_PAGE], "run-list")) == 6
    site_of(lab, site)
    pages = checked(site)
    assert {path for path in pages if path.startswith("runs/")} == {run_file(run) for run in runs}
    assert runs[0] in links(pages[KPROBE_PAGE])


@NEEDS_RUPTURES
def test_times_have_their_steps(lab: Path, site: Path) -> None:
    chance = random.Random(3)
    store_days(lab, [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) for day in range(30)])
    site_of(lab, site, most_runs=1)
    titles = [element.whole_text for element in checked(site)[KPROBE_PAGE].all("h3")]
    assert [title.split(":")[0] for title in titles] == ["2026-03-16"]


@NEEDS_RUPTURES
def test_times_without_the_library_say_what_is_missing_until_it_is_there(
    lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    store_days(lab, [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) for day in range(30)])
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ruptures", None)
        built = site_of(lab, site, most_runs=1)
        assert "ruptures" in built.lacking
        pages = checked(site)
        assert "pip install 'probe-lab[statistics]'" in pages[KPROBE_PAGE].whole_text
        assert [row[3] for row in table(pages["experiments/quickstart.html"], "metric-list")] == ["unknown", "0"]
    assert site_of(lab, site, most_runs=1).lacking == ""
    assert "probe-lab[statistics]" not in checked(site)[KPROBE_PAGE].whole_text


def test_large_data_is_beside_the_page(lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell("none"), cell("kprobe")]
    with Store.open(lab) as store:
        entry = store.begin_run("quickstart", [one.id for one in cells], digest="1", provenance={})
        for one in cells:
            store.record(entry.id, one)
    kept_run(entry.directory, *cells, console=HOSTILE)
    monkeypatch.setattr(run_page, "LARGEST_PAGE", 1000)
    site_of(lab, site)
    folder = f"{run_file(entry.id)}.files/"
    beside = {path: text for path, text in files(site).items() if path.startswith(folder)}
    assert len(beside) == 2
    assert HOSTILE in beside.values()
    assert "<script>alert" not in files(site)[run_file(entry.id)]
    monkeypatch.undo()
    with Store.open(lab) as store:
        store.finish_run(entry.id, "complete")
    site_of(lab, site)
    assert not any(path.startswith(folder) for path in files(site))
    assert not (site / folder).exists()


@pytest.mark.parametrize("name", ["../../escaped", "<script>alert(1)</script>", "a" * 300, 'x" onload="y', "Ä\n/\\"])
def test_a_name_that_is_none_stays_in_the_site_and_is_text(name: str, lab: Path, site: Path) -> None:
    """The store may have been changed by another program: such a run cannot be loaded, and the others can."""
    runs = six_days(lab)
    with sqlite3.connect(lab / FILE_NAME) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE runs SET experiment = ?, id = ? WHERE id = ?", (name, name, runs[0]))
        connection.execute("UPDATE cells SET run = ? WHERE run = ?", (name, runs[0]))
        connection.execute("UPDATE samples SET run = ? WHERE run = ?", (name, runs[0]))
    site_of(lab, site)
    pages = checked(site)
    assert not any("<script>alert" in text for path, text in files(site).items() if path.endswith(".html"))
    assert "the stored results of run" in pages[run_file(name)].whole_text
    assert len(table(pages["index.html"], "experiment-list")) == 2
    assert sorted(path.name for path in site.parent.iterdir()) == ["lab", "site"]


@pytest.mark.parametrize("record", ["json_set(record, '$.value', 'seven')", "'no JSON'", "'7'"])
def test_a_history_that_contradicts_itself_is_said_on_its_page(record: str, lab: Path, site: Path) -> None:
    six_days(lab)
    with sqlite3.connect(lab / FILE_NAME) as connection:
        connection.execute(f"UPDATE cells SET record = {record} WHERE id = ?", (KPROBE,))
    site_of(lab, site)
    pages = checked(site)
    assert "contradict each other" in pages[KPROBE_PAGE].whole_text
    assert len(table(pages["experiments/quickstart.html"], "metric-list")) == 1
