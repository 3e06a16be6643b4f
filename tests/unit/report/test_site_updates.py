# SPDX-License-Identifier: GPL-2.0-only
"""A site that is built again: only what has changed is written, and nothing of others is touched."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from record_builders import cell
from stored_histories import KPROBE, counted, store_days
from stored_sites import checked, files, one_more_day, site_of, six_days, written

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.pages.site import building
from orchestrator.pages.site.building import metric_file, run_file
from orchestrator.report.chart import Chart
from orchestrator.report.html import frame, pictures
from orchestrator.results.contract import RunRecord
from orchestrator.results.cost_history import Metric
from orchestrator.results.store import FILE_NAME, Store

KPROBE_PAGE, NONE_PAGE = (metric_file(Metric("quickstart", one)) for one in (KPROBE, cell("none").id))
LISTS = {"index.html", "runs.html", "experiments/quickstart.html"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def rewritten(before: Mapping[str, int], directory: Path) -> set[str]:
    """The files that were written since; all that were there are there still."""
    after = written(directory)
    assert before.keys() <= after.keys()
    return {path for path, when in after.items() if before.get(path) != when}


def with_table(*pages: str) -> set[str]:
    return {name for page in pages for name in (page, page.replace(".html", ".csv"))}


def test_without_a_change_nothing_is_written(lab: Path, site: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    before = written(site)
    built = site_of(lab, site)
    assert rewritten(before, site) == set()
    assert (built.pages, built.written) == (11, 0)


def test_a_run_is_followed_from_its_beginning_to_its_end(lab: Path, site: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    before = written(site)
    run = one_more_day(lab)
    site_of(lab, site)
    # Its baseline has an outcome, its kprobe has none.
    assert rewritten(before, site) == {run_file(run), *with_table(NONE_PAGE), *LISTS}
    before = written(site)
    with Store.open(lab) as store:
        store.record(run, counted(1060))
    site_of(lab, site)
    assert rewritten(before, site) == {run_file(run), *with_table(KPROBE_PAGE), *LISTS}
    before = written(site)
    with Store.open(lab) as store:
        store.finish_run(run, "complete")
    site_of(lab, site)
    assert rewritten(before, site) == {run_file(run), *LISTS}
    assert "interrupted" not in files(site)[run_file(run)]


def test_other_experiments_pages_stay(lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    six_days(lab)
    site_of(lab, site)
    before = written(site)
    monkeypatch.setattr("stored_histories.EXPERIMENT", "other")
    (run,) = store_days(lab, [counted(7)])
    site_of(lab, site)
    new = {run_file(run), "experiments/other.html"}
    new |= with_table(*(metric_file(Metric("other", one)) for one in (KPROBE, cell("none").id)))
    assert rewritten(before, site) == new | {"index.html", "runs.html"}


def test_a_baseline_changes_lists_only(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    site_of(lab, site)
    before = written(site)
    with Store.open(lab) as store:
        store.set_baseline("default", runs[0])
    site_of(lab, site)
    assert rewritten(before, site) == LISTS


def test_another_version_of_the_program_makes_all_pages_anew(
    lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    six_days(lab)
    site_of(lab, site)
    monkeypatch.setattr(building, "program_digest", lambda: "another")
    # Pages that say the same are the same.
    assert site_of(lab, site).written == 0
    monkeypatch.setattr(building, "program_digest", lambda: "a third")
    monkeypatch.setattr(frame, "__version__", "a third")
    assert site_of(lab, site).written == 11


def test_a_page_that_somebody_removed_is_made_again(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    site_of(lab, site)
    content = files(site)
    (site / run_file(runs[0])).unlink()
    assert site_of(lab, site).written == 1
    assert files(site) == content


def test_what_left_the_store_leaves_the_site_and_nothing_else_does(lab: Path, site: Path) -> None:
    runs = six_days(lab)
    other = one_more_day(lab)
    with Store.open(lab) as store:
        entry = store.begin_run("other", ["a/b"], digest="1", provenance={})
        store.record(entry.id, cell("none", id="a/b"))
    site_of(lab, site)
    own = {"CNAME": "example.org\n", "runs/notes.html": "mine", "metrics/other/notes.txt": "mine"}
    for name, text in own.items():
        (site / name).write_text(text)
    gone = [run_file(entry.id), *with_table(metric_file(Metric("other", "a/b"))), "experiments/other.html"]
    assert set(gone) <= set(files(site))
    with sqlite3.connect(lab / FILE_NAME) as connection:
        for table, column in (("samples", "run"), ("cells", "run"), ("runs", "id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (entry.id,))
    built = site_of(lab, site)
    assert built.removed == 3
    left = files(site)
    assert not set(gone) & set(left)
    assert own.items() <= left.items()
    for name in own:
        (site / name).unlink()
    assert {run_file(run) for run in (*runs, other)} < set(checked(site))


def test_a_build_that_fails_goes_on_where_it_was(lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    six_days(lab)
    loads: list[str] = []

    def interrupted(store: Store, run: str) -> RunRecord:
        loads.append(run)
        if len(loads) == 4:
            raise KeyboardInterrupt
        return load_run(store, run)

    load_run = Store.load_run
    with monkeypatch.context() as patched:
        patched.setattr(Store, "load_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            site_of(lab, site)
    begun = written(site)
    assert len(begun) == 3
    assert rewritten(begun, site) == set()
    assert site_of(lab, site).written == 8
    assert begun.items() <= written(site).items()
    checked(site)


@pytest.fixture
def at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The files of the site of six days, built without a disturbance; none has charts, as in ``site_builder``."""
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    six_days(tmp_path / "other")
    site_of(tmp_path / "other", tmp_path / "at-once")
    return files(tmp_path / "at-once")


OFTEN = pytest.mark.nightly("builds that are killed after two files and after ten are daily: two seconds each")


@pytest.mark.parametrize("files_written", [2, 10, *(pytest.param(count, marks=OFTEN) for count in (1, 3, 8, 13, 15))])
def test_a_build_that_is_killed_goes_on(files_written: int, lab: Path, site: Path, at_once: Mapping[str, str]) -> None:
    six_days(lab)
    assert build_in_a_process(lab, site, str(files_written)).wait() == 9
    whole = [text for name, text in files(site).items() if not Path(name).name.startswith(".")]
    assert all(text.endswith(("</html>", "\n")) for text in whole)
    site_of(lab, site)
    assert files(site) == at_once


def test_two_builds_at_once(lab: Path, site: Path, at_once: Mapping[str, str]) -> None:
    six_days(lab)
    both = [build_in_a_process(lab, site) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert files(site) == at_once


def build_in_a_process(lab: Path, site: Path, *files_written: str) -> subprocess.Popen[bytes]:
    """A build in a process of its own, which ends at once, with status 9, where the next file would be there."""
    script = Path(__file__).with_name("site_builder.py")
    return subprocess.Popen([sys.executable, script, lab, site, *files_written])


def test_a_folder_with_something_else_is_refused(lab: Path, site: Path) -> None:
    six_days(lab)
    site.mkdir()
    (site / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not a site") as refused:
        site_of(lab, site)
    assert "empty folder" in refused.value.hint
    assert sorted(path.name for path in site.iterdir()) == ["thesis.tex"]
    (site / "thesis.tex").unlink()
    site_of(lab, site)
    with pytest.raises(UsageError, match="a site needs a folder"):
        site_of(lab, site / "index.html")


def test_a_site_of_another_lab_is_refused(lab: Path, site: Path, tmp_path: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    before = written(site)
    six_days(tmp_path / "another")
    with pytest.raises(UsageError, match="the site of another lab"):
        site_of(tmp_path / "another", site)
    assert written(site) == before


def test_no_file_of_somebody_elses_is_overwritten(lab: Path, site: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    before = written(site)
    run = one_more_day(lab)
    (site / run_file(run)).write_text("mine")
    with pytest.raises(UsageError, match="does not belong to the site"):
        site_of(lab, site)
    (site / run_file(run)).unlink()
    assert written(site) == before
    new = metric_file(Metric("other", "a/b")).replace(".html", ".csv")
    with Store.open(lab) as store:
        entry = store.begin_run("other", ["a/b"], digest="1", provenance={})
        store.record(entry.id, cell("none", id="a/b"))
    (site / new).parent.mkdir()
    (site / new).write_text("mine")
    with pytest.raises(UsageError, match="does not belong to the site"):
        site_of(lab, site)
    assert (site / new).read_text() == "mine"


def test_a_link_out_of_the_site_is_not_followed(lab: Path, site: Path, tmp_path: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    one_more_day(lab)
    (site / "runs").rename(tmp_path / "elsewhere")
    (site / "runs").symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    with pytest.raises(UsageError, match="leads out of the site"):
        site_of(lab, site)
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


@pytest.mark.parametrize("content", ["", "[]", '{"lab": "x", "pages": {"../../x": {}}}', '{"version": 2}'])
def test_a_damaged_state_is_refused(content: str, lab: Path, site: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    (site / ".site" / "state.json").write_text(content)
    with pytest.raises(LabError, match="damaged"):
        site_of(lab, site)


def test_a_site_of_an_earlier_version_is_kept(lab: Path, site: Path) -> None:
    six_days(lab)
    site_of(lab, site)
    file = site / ".site" / "state.json"
    state = json.loads(file.read_text())
    state["pages"] = {path: {**page, "line": {"steps": 0}} for path, page in state["pages"].items()}
    file.write_text(json.dumps(state))
    assert site_of(lab, site).written == 0


def test_equal_charts_are_drawn_once(lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = pytest.importorskip("orchestrator.report.drawing", reason="the extra plots is not installed")
    svg_text: Callable[[Chart], str] = drawing.svg_text
    store_days(lab, [counted(1036)] * 3)
    drawn: list[str] = []

    def noted(chart: Chart) -> str:
        drawn.append(chart.title)
        return svg_text(chart)

    monkeypatch.setattr(drawing, "svg_text", noted)
    monkeypatch.setattr(pictures, "_charts", {})
    site_of(lab, site)
    assert len(drawn) == 1
    assert all("<svg" in text for path, text in files(site).items() if path.startswith("runs/"))


def test_a_disk_that_is_full(lab: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    six_days(lab)

    def full(path: Path, content: str | bytes) -> None:
        if path.parent.name == "experiments":
            raise OSError(28, "No space left on device", str(path))
        write_whole(path, content)

    monkeypatch.setattr(building, "write_whole", full)
    with pytest.raises(HostError, match="no space left for results"):
        site_of(lab, site)
    monkeypatch.undo()
    assert site_of(lab, site).written == 3


def test_a_store_without_a_run(lab: Path, site: Path) -> None:
    with pytest.raises(UsageError, match="there is no run yet"):
        site_of(lab, site)
    assert not site.exists()
