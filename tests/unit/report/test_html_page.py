# SPDX-License-Identifier: GPL-2.0-only
"""A run as a page: it is valid, needs nothing from outside, and shows untrusted text as text."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from golden_page import check_golden_page
from html_checks import attachment, check_page, parsed
from record_builders import COUNTS, cell, failed, many_probes, marker_loops, recorded_build, reference, run, wall_list
from report_examples import RUNS
from stored_profiles import record, stacked

from orchestrator.benchmarks.registry import reports
from orchestrator.errors import LabError
from orchestrator.pages import run_page as module
from orchestrator.pages.run_page import run_page, sheets_page
from orchestrator.report.html.frame import Page, page_folder, write_page
from orchestrator.report.run_sheets import sheets
from orchestrator.report.summary import summary
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

HOSTILE = '</pre></template><script>alert(1)</script><img src="http://x/" onerror=alert(1)>]]>-->\x1b[31m{{ 7 * 7 }}'
BOOT = "boot1/guest1-pentium4-debian-686"
ALL_RUNS = {
    **RUNS,
    "markers": run(*marker_loops(empty=2.0, empty_optimized=5.0, varargs_preemptible=None)),
    "scaling": run(*many_probes()),
    "system": run(*recorded_build()),
    "unknown": run(cell("none", benchmark="of-another-version")),
}


def page_of(*cells: CellRecord, directory: Path) -> str:
    return run_page(Run(run(*cells), directory), reports()).text


def kept_run(directory: Path, *cells: CellRecord, console: str = "booted\n", c: str = "int x;\n") -> None:
    """A run's directory with a guest, its console and the C of a module for each cell that has a probe."""
    (directory / BOOT).parent.mkdir(parents=True)
    (directory / f"{BOOT}.console").write_text(console)
    modules = {}
    for one in cells:
        if one.probe != "none":
            key = hashlib.sha256(one.probe.encode()).hexdigest()[:24]
            folder = directory / "modules" / "debian-686" / f"lab_{one.probe}-{key[:8]}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"lab_{one.probe}_main.c").write_text(c)
            modules[one.id] = {"key": key, "file_sha256": "0"}
    boot = {
        "name": BOOT,
        "qemu": ["qemu-system-x86_64", "-append", "quiet x=<b>"],
        "kernel": {"name": "debian-686", "release": "6.1", "packages": {"linux-image": "6.1"}},
        "modules": modules,
        "cells": [one.id for one in cells],
    }
    content = {"sessions": [{"qemu": "QEMU emulator version 7.2"}], "boots": [boot]}
    (directory / "provenance.json").write_text(json.dumps(content))
    (directory / "experiment.yaml").write_text("name: x\n")


@pytest.mark.parametrize("name", ALL_RUNS)
def test_every_kind_of_run_is_a_valid_page_without_its_directory(name: str, tmp_path: Path) -> None:
    root = check_page(run_page(Run(ALL_RUNS[name], tmp_path / "missing"), reports()).text)
    cells = [element for element in root.all("details") if element.attributes.get("class") == "cell"]
    assert len(cells) == len(ALL_RUNS[name].cells)
    titles = [element.whole_text for element in root.all("h3")]
    assert all(sheet.title in titles for sheet in sheets(ALL_RUNS[name], reports()))


def test_a_run_is_as_in_the_golden_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = stacked("pentium4/debian-686/kprobe/noop", {"callbench": 5, "callbench;entry": 7})
    cells = [
        cell("none", reference=reference("none")),
        record(made, "kprobe", tmp_path / "run"),
        failed("djprobe", "the guest hangs\n<console>", reference=reference("djprobe")),
    ]
    kept_run(tmp_path / "run", *cells)
    check_golden_page("run", page_of(*cells, directory=tmp_path / "run"), tmp_path)


def test_tables_have_the_figures_of_the_run_and_of_the_document(tmp_path: Path) -> None:
    cells = [cell(probe, reference=reference(probe)) for probe in COUNTS]
    table = parsed(page_of(*cells, directory=tmp_path)).all("table")[0]
    rows = [[child.whole_text for child in row.children] for row in table.all("tr")]
    assert ["overhead(instructions)", "0", "627", "1280", "53"] in rows
    assert ["published overhead(nsec)", "0", "1016.25", "1578", "30.25"] in rows


def test_consoles_and_c_are_stored_once_and_come_back(tmp_path: Path) -> None:
    cells = [*(cell(probe) for probe in COUNTS), cell("kprobe", id="again")]
    console, c = "[    0.1] Ünïcode\r\n\x1b[0m" * 50, "/* </template> */ int x;\n"
    kept_run(tmp_path, *cells, console=console, c=c)
    page = page_of(*cells, directory=tmp_path)
    root = check_page(page)
    assert attachment(page, f"Console of {BOOT}").encode() == (tmp_path / f"{BOOT}.console").read_bytes()
    assert c in attachment(page, "C of lab_kprobe")
    assert len(root.all("template")) == 1 + 3
    details = {element.attributes["id"]: element for element in root.all("details")}
    assert [link.whole_text for link in details["cell-5"].all("a")][1:] == [
        "Console",
        f"C of lab_kprobe-{hashlib.sha256(b'kprobe').hexdigest()[:8]}",
    ]
    assert "quiet x=<b>" in details["guest-1"].whole_text


def test_text_of_a_guest_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    plain = page_of(cell("none"), failed("kprobe", "why"), directory=tmp_path)
    hostile = [cell("none", notes=[HOSTILE], parameters={"outcome": "<script>x()</script>"}), failed("kprobe", HOSTILE)]
    kept_run(tmp_path / "run", *hostile, console=HOSTILE, c=HOSTILE)
    page = page_of(*hostile, directory=tmp_path / "run")
    root = check_page(page)
    assert "<script>alert" not in page
    assert len(root.all("script")) == len(parsed(plain).all("script")) == 1
    assert root.all("img") == []
    assert "{{ 7 * 7 }}" in root.whole_text
    assert attachment(page, "Console of") == HOSTILE


def test_the_policy_allows_the_pages_own_style_and_script_only(tmp_path: Path) -> None:
    root = check_page(page_of(cell("none"), directory=tmp_path))
    policy = next(one.attributes["content"] for one in root.all("meta") if "http-equiv" in one.attributes)
    for tag in ("style", "script"):
        (element,) = root.all(tag)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_links_out_of_the_runs_directory_are_not_followed(tmp_path: Path) -> None:
    cells = [cell("none"), cell("kprobe")]
    kept_run(tmp_path / "run", *cells)
    (tmp_path / "secret").write_text("secret")
    for file in (tmp_path / "run" / f"{BOOT}.console", *(tmp_path / "run").rglob("*.c")):
        file.unlink()
        file.symlink_to(tmp_path / "secret")
    assert parsed(page_of(*cells, directory=tmp_path / "run")).all("template") == []


@pytest.mark.parametrize("content", ["", "[]", '{"boots": [{"name": "../../etc/x"}]}', '{"boots": 7}', "{" * 100_000])
def test_a_damaged_provenance_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(content)
    root = check_page(page_of(cell("none"), directory=tmp_path))
    assert not any(element.attributes.get("id") == "guests" for element in root.all("section"))


def test_a_profile_has_its_symbols_and_its_flame_graph(tmp_path: Path) -> None:
    made = stacked("x/none", {"callbench": 5, "callbench;entry": 7})
    page = page_of(record(made, "none", tmp_path), directory=tmp_path)
    root = check_page(page)
    (graph,) = root.all("svg")
    assert "entry: 7 instructions per call, 7 in its own code" in graph.whole_text
    (tmp_path / "profiles" / "x.none.json.gz").write_bytes(b"damaged")
    assert check_page(page_of(record(made, "none", tmp_path / "other"), directory=tmp_path)).all("svg") == []


def test_above_the_limit_attachments_are_files_beside_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stacked("x/none", {"callbench": 5, "callbench;entry": 7})
    cells = [record(made, "none", tmp_path / "run"), cell("kprobe")]
    kept_run(tmp_path / "run", *cells, console=HOSTILE)
    monkeypatch.setattr(module, "LARGEST_PAGE", 1000)
    file = tmp_path / "page.html"
    page = run_page(Run(run(*cells), tmp_path / "run"), reports(), page_folder(file))
    write_page(page, file)
    root = check_page(file.read_text())
    assert root.all("template") == []
    targets = [
        element.attributes["href"] for element in root.all("a") if not element.attributes["href"].startswith("#")
    ]
    assert len(targets) == len(page.files) == 3
    assert all((tmp_path / target).is_file() for target in targets)
    assert (tmp_path / "page.html.files" / f"{BOOT.replace('/', '_')}.console.txt").read_text() == HOSTILE


def test_a_page_is_not_written_through_links(tmp_path: Path) -> None:
    """A run's directory from elsewhere must not choose which of the reader's files its page replaces."""
    run, mine = tmp_path / "run", tmp_path / "mine"
    page = Page("a page", "report.html.files", {"console.txt": b"a console"})
    (run / page.folder).mkdir(parents=True)
    mine.write_text("mine")
    for link in (run / page.folder / "console.txt", run / ".report.html.new", run / "report.html"):
        link.symlink_to(mine)
    write_page(page, run / "report.html")
    assert mine.read_text() == "mine"
    assert not (run / "report.html").is_symlink()
    assert (run / page.folder / "console.txt").read_bytes() == b"a console"
    (run / page.folder).rename(tmp_path / "elsewhere")
    (run / page.folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match="the page's folder is a symbolic link"):
        write_page(page, run / "report.html")


def test_many_cells_stay_small(tmp_path: Path) -> None:
    """A thousand cells have at most 5 MB: five kilobytes each, beside what every page has."""
    few, many = (
        len(page_of(*(cell("none", id=f"c{number}", table=None) for number in range(count)), directory=tmp_path))
        for count in (10, 110)
    )
    assert (many - few) / 100 < 5000
    assert few < 100_000


def test_the_head_has_the_sentences_that_the_run_ended_with(tmp_path: Path) -> None:
    record = RUNS["with_reference"]
    root = check_page(run_page(Run(record, tmp_path), reports()).text)
    head = root.all("main")[0].children
    (findings,) = [element for element in head if element.attributes.get("class") == "findings"]
    assert [element.whole_text for element in findings.all("li")] == summary(record, reports())
    empty = check_page(run_page(Run(run(), tmp_path), reports()).text)
    assert empty.all("ul") == []


def test_equal_runs_are_equal_pages(tmp_path: Path) -> None:
    pages = {page_of(*wall_list(), directory=tmp_path) for _ in range(2)}
    assert len(pages) == 1


def test_sheets_of_no_run_have_the_same_frame() -> None:
    record = RUNS["lists"]
    root = check_page(sheets_page("A & B", sheets(record, reports()), summary=["<b>"]))
    assert root.all("h1")[0].whole_text == "A & B"
    assert "<b>" in root.all("main")[0].whole_text


def test_switched_branches_are_listed_by_their_key(tmp_path: Path) -> None:
    places = [("random_poll+0x25", "ready"), ("get_random_u8+0x1d", "ready"), ("__schedule+0x9", "0xc1edc110")]
    switched = [{"place": place, "key": key, "before": "eb0e", "after": "89f6"} for place, key in places]
    text = {"digest": "ab" * 32, "size": 9604224, "switched": switched}
    page = page_of(cell("kprobe", text=text), directory=tmp_path)
    assert "by key ready: random_poll+0x25, get_random_u8+0x1d; by key 0xc1edc110: __schedule+0x9" in page
