# SPDX-License-Identifier: GPL-2.0-only
"""Does ``compare`` compare what is meant, say what changed in each form, and end with the right status?"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from called_commands import orchestrator, refusal
from command_line import objects
from html_checks import check_page
from record_builders import cell, failed
from stored_profiles import profile, record, store_run
from typer.testing import CliRunner, Result

from orchestrator import program
from orchestrator.cli import completion
from orchestrator.cli.main import app
from orchestrator.comparison.comparison import next_run
from orchestrator.library.stored import compared_runs
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import find_run
from orchestrator.results.statistics import median
from orchestrator.results.store import Store

pytestmark = pytest.mark.usefixtures("lab")


MACHINE = "pentium4/debian-686"


PROVENANCE: dict[str, Any] = {"sessions": [{"qemu": "QEMU 7.2.22"}], "boots": []}


class Runs:
    """Runs of one experiment in the lab's store, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def add(
        self, *cells: CellRecord, budgets: str = "", provenance: dict[str, Any] = PROVENANCE, experiment: str = "x"
    ) -> str:
        self.count += 1
        directory = self.folder / f"run{self.count}"
        run = store_run(self.folder / "lab", directory, *cells, experiment=experiment)
        (directory / "experiment.yaml").write_text(f"name: {experiment}\n{budgets}")
        (directory / "provenance.json").write_text(json.dumps(provenance))
        return run


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def exact(probe: str, value: float, **changes: Any) -> CellRecord:
    numbers = {"samples": [value] * 2, "value": value, "overhead": value - 409, "interval": [value - 409] * 2}
    return cell(probe, **{**numbers, **changes})


def timed(samples: Sequence[float], **changes: Any) -> CellRecord:
    fields = {
        "clock": "wall",
        "unit": "ns",
        "samples": samples,
        "value": median(samples),
        "overhead": 9.0,
        "interval": [8, 10],
    }
    return cell("kprobe", **{**fields, **changes})


def answer(*arguments: str, status: int) -> Any:
    result = orchestrator("compare", *arguments, "--format", "json")
    assert result.exit_code == status, result.output
    return objects(result.stdout)


def test_a_table_fits_into_80_columns(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["bpftrace.kprobe_vfs_read_comm_cou.aeb1cc/noop/vfs_read", "kprobe/noop/__ia32_sys_gettimeofday+0x1234"]
    budgets = "budgets: {'id=*': +1%}\n"
    before, after = (
        runs.add(*(exact("kprobe", value, id=f"{MACHINE}/{name}") for name in names), budgets=budgets)
        for value in (1036.0, 1040123.0)
    )
    shown = orchestrator("compare", before, after).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80, shown
    figures = ["1036", "1040123", "+1039087", "+100298.0", "%", "regressed", "exceeds", "+1%"]
    rows = [at for at, line in enumerate(lines) if line.split()[1:] == figures]
    assert len(rows) == 2
    name = "".join(line.split()[0] for line in lines[rows[1] : rows[1] + 4]).partition("overhead")[0]
    assert name == "kprobe/__ia32_sys_gettimeofday+0x1234"


def test_two_runs_as_a_table(runs: Runs) -> None:
    before = runs.add(exact("none", 409), exact("kprobe", 1036), exact("djprobe", 462), exact("jprobe", 1689))
    newer = {**PROVENANCE, "sessions": [{"qemu": "QEMU 10.0.13"}]}
    after = runs.add(
        exact("none", 409), exact("kprobe", 1039), exact("djprobe", 460), failed("jprobe", "the guest hangs\n..."),
        provenance=newer,
    )  # fmt: skip
    result = orchestrator("compare", before, after)
    assert result.exit_code == 1
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [" ".join(line) for line in lines[:5]] == [
        "x",
        "4 cells compared: 1 failed, 1 regressed, 1 improved, 1 unchanged; 2 exceed their budget.",
        f"runs {before} -> {after}",
        "different QEMU: QEMU 7.2.22 -> QEMU 10.0.13",
        "all cells: pentium4, debian-686, noop",
    ]
    rows = [line for line in lines[6:] if line]
    assert ["jprobe", "1689", "failed", "failed", "[1]", "exceeded"] in rows
    assert ["djprobe", "462", "460", "-2", "-0.4", "%", "improved"] in rows
    assert ["kprobe", "1036", "1039", "+3", "+0.3", "%", "regressed", "exceeds", "+0"] in rows
    assert ["overhead", "627", "630", "+3", "+0.5", "%"] in rows
    assert "[1] failed: the guest hangs" in result.stdout


def test_a_review_comment(runs: Runs) -> None:
    before = runs.add(exact("none", 409), exact("kprobe", 1036))
    after = runs.add(exact("none", 409), exact("kprobe", 1039))
    result = orchestrator("compare", before, after, "--format", "markdown")
    assert result.exit_code == 1
    shown = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    assert (
        shown
        == f"""\
❌ **2 cells compared: 1 regressed, 1 unchanged; 1 exceeds its budget.**

|  | before | after | change |  |  | budget |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| kprobe | 1036 | 1039 | +3 | +0.3 % | regressed | exceeds +0 |
| &nbsp;&nbsp;overhead | 627 | 630 | +3 | +0.5 % |  |  |

<details><summary>Details</summary>

experiment x
before: `{before}`
after: `{after}`
all cells: pentium4, debian-686, noop

1 unchanged: {MACHINE}/none/noop

</details>
"""
    )
    assert orchestrator("compare", before, before, "--format", "markdown").stdout.startswith("✅ **2 cells compared")


def test_a_comment_of_a_pull_request(runs: Runs, tmp_path: Path) -> None:
    identity = f"{MACHINE}/kprobe/noop"
    for folder, counts in [("run1", {"entry": 40, "a|b": 2}), ("run2", {"entry": 40, "a|b": 5})]:
        facts = {"sessions": [{"orchestrator": "0.1.0", "qemu": "QEMU 7.2.22 @nobody"}], "boots": []}
        kprobe = record(profile(identity, counts), "kprobe", tmp_path / folder)
        runs.add(exact("none", 409), kprobe, provenance=facts)
    before, after = (find_run(str(tmp_path / folder), tmp_path / "lab") for folder in ("run1", "run2"))
    result = orchestrator("compare", "--format", "github")
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if line]
    assert lines[0] == "<!-- probe-lab: x -->"
    assert lines[1] == "**❌ 2 cells compared: 1 regressed, 1 unchanged; 1 exceeds its budget.**"
    assert lines[4] == "| kprobe | 42 | 45 | +3 | +7.1 % | regressed | exceeds +0 |"
    symbols = lines.index("<details><summary>kprobe, by symbol</summary>")
    assert any(row.startswith("| a\\|b | 2 | 5 | +3 ") for row in lines[symbols:])
    assert f"1 unchanged: {MACHINE}/none/noop" in lines
    digest = sha256(b"name: x\n").hexdigest()[:16]
    made = f"runs {before.record.run}, {after.record.run}; probe-lab 0.1.0; QEMU 7.2.22 @<!-- -->nobody"
    assert lines[-1] == f"<sub>{made}; experiment {digest}</sub>"
    assert "<details><summary>kprobe" not in orchestrator("compare", "--format", "markdown").stdout


def test_a_page(runs: Runs, tmp_path: Path) -> None:
    before, after = runs.add(exact("kprobe", 1036)), runs.add(exact("kprobe", 1039))
    shown = orchestrator("compare", before, after, "--format", "html")
    assert shown.exit_code == 1
    root = check_page(shown.stdout)
    assert root.all("h1")[0].whole_text == "x: comparison"
    file = tmp_path / "page.html"
    written = orchestrator("compare", before, after, "--format", "html", "--out", str(file))
    assert (written.exit_code, written.stdout) == (1, "")
    assert str(file) in written.stderr
    assert file.read_text() == shown.stdout
    assert "markdown goes to stdout" in refusal("compare", before, after, "--format", "markdown", "--out", str(file))
    # Before anything is measured for it.
    nowhere = ("--format", "html", "--out", str(tmp_path / "none" / "page.html"))
    assert "this folder does not exist" in refusal("compare", "--config", "none.yaml", "a", "b", *nowhere)


def test_symbols_explain_a_change(runs: Runs, tmp_path: Path) -> None:
    identity = f"{MACHINE}/kprobe/noop"
    executed = {"entry": 40, "handler [lab_kprobe]": 2, **{f"f{n}": 10 for n in range(8)}}
    more = {**executed, "handler [lab_kprobe]": 5, **{f"f{n}": 11 for n in range(8)}}
    for folder, counts in [("run1", executed), ("run2", more)]:
        runs.add(record(profile(identity, counts), "kprobe", tmp_path / folder))
    (found,) = answer(status=1).cells
    assert [(symbol.symbol, symbol.change) for symbol in found.symbols][:2] == [
        ("handler [lab_kprobe]", 3.0),
        ("f0", 1.0),
    ]
    assert sum(symbol.change for symbol in found.symbols) == found.value.difference == 11
    rows = [line.split() for line in orchestrator("compare").stdout.splitlines()]
    assert ["handler", "[lab_kprobe]", "2", "5", "+3"] in rows
    assert ["4", "others,", "by", "symbol", "+4"] in rows
    (tmp_path / "run1" / "profiles" / f"{identity.replace('/', '.')}.json.gz").unlink()
    assert answer(status=1).cells[0].symbols == []


def test_a_run_alone_is_compared_with_the_default_or_the_one_before(runs: Runs, lab: Path) -> None:
    first = runs.add(exact("kprobe", 1000))
    assert "found no complete run of experiment 'x' before" in refusal("compare", first)
    second, third = runs.add(exact("kprobe", 1001)), runs.add(exact("kprobe", 1003))
    assert answer("latest", status=1).before.run == answer(status=1).before.run == second
    with Store.open(lab) as store:
        store.set_baseline("default", first)
    found = answer(status=1)
    assert (found.before.run, found.after.run, found.cells[0].value.difference) == (first, third, 3.0)
    assert answer("default", third, status=1) == found
    assert answer(third, first, status=0).cells[0].change == "improved"
    assert "found no complete run" in refusal("compare", "default")


def test_budgets_are_those_of_the_run_after(runs: Runs) -> None:
    strict = runs.add(exact("kprobe", 1000), exact("none", 400))
    wide = runs.add(exact("kprobe", 1005), exact("none", 400), budgets="budgets: {kprobe: +5}")
    assert not answer(strict, wide, status=0).exceeded
    assert "within +5" in orchestrator("compare", strict, wide).stdout
    (found,) = answer(wide, runs.add(exact("kprobe", 1006)), "--only", "kprobe", status=1).cells
    assert found.exceeded == ["value +1 instructions, allowed +0"]
    damaged = runs.add(exact("kprobe", 1000), budgets="budgets:\n  kprobe: much")
    assert "experiment.yaml:3: budgets.kprobe: found 'much'; expected +N" in refusal("compare", strict, damaged)


def test_cells_of_two_probes_and_parts_of_runs(runs: Runs) -> None:
    before = runs.add(exact("kprobe", 1036), exact("djprobe", 462))
    after = runs.add(exact("kprobe", 1040), exact("djprobe", 463))
    (found,) = answer(f"{before}:kprobe", f"{after}:djprobe", status=0).cells
    assert (found.before, found.after) == (f"{MACHINE}/kprobe/noop", f"{MACHINE}/djprobe/noop")
    assert found.value.difference == 463 - 1036
    for names in [(before, f"{after}:djprobe"), (f"{before}:djprobe", after), (f"{after}:djprobe",)]:
        assert [one.after for one in answer(*names, status=1).cells] == [f"{MACHINE}/djprobe/noop"]
    assert len(answer(f"{before}:noop", f"{after}:noop", status=1).cells) == 2


def test_a_default_of_another_experiment_comes_last(runs: Runs, lab: Path) -> None:
    other = runs.add(exact("kprobe", 7), experiment="y")
    with Store.open(lab) as store:
        store.set_baseline("default", other)
    runs.add(exact("kprobe", 9))
    assert answer(status=1).before.run == other  # its only run
    before = runs.add(exact("kprobe", 9))
    runs.add(exact("kprobe", 9))
    assert answer(status=0).before.run == before


def test_only_an_unknown_name_may_be_a_cell(runs: Runs) -> None:
    assert "there is no run yet" in (message := refusal("compare"))
    assert "RUN:CELL" not in message
    runs.add(exact("kprobe", 9))
    assert "Name a cell RUN:CELL: latest:kprobe" in refusal("compare", "kprobe", "latest")
    misspelt = refusal("compare", "latst", "latest")
    assert "did you mean 'latest'?" in misspelt
    assert "RUN:CELL" not in misspelt


def test_the_first_of_two_unknown_runs_is_named(runs: Runs) -> None:
    runs.add(exact("kprobe", 9))
    assert "unknown run 'own'" in refusal("compare", "own", "my-read")


def test_two_kernels_of_one_run(runs: Runs) -> None:
    both = [
        exact("kprobe", value, kernel=kernel, id=f"pentium4/{kernel}/kprobe/noop")
        for kernel, value in [("a", 1000), ("b", 1002)]
    ]
    run = runs.add(*both)
    found = answer(run, "--kernels", "a", "b", status=1)
    assert [one.value.difference for one in found.cells] == [2.0]
    assert found == answer("--kernels", "a", "b", status=1)
    assert answer("--kernels", "b", "a", status=0).cells[0].change == "improved"
    assert "has no cell of kernel 'c'" in refusal("compare", run, "--kernels", "a", "c")
    comment = orchestrator("compare", "--kernels", "a", "b", "--format", "markdown").stdout
    assert f"run: `{run}`" in comment
    assert "| a -&gt; b | 1000 | 1002 |" in comment


def test_runs_of_two_experiments_name_both(runs: Runs) -> None:
    before, after = runs.add(exact("kprobe", 1000)), runs.add(exact("kprobe", 1001), experiment="y")
    assert orchestrator("compare", before, after).stdout.startswith("x -> y\n")
    assert "experiment x -&gt; y" in orchestrator("compare", before, after, "--format", "markdown").stdout


def test_times_without_a_verdict_say_what_to_run(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.add(timed([1000.0 + n for n in range(5)]))
    runs.add(timed([2000.0 + n for n in range(5)]))
    found = answer(status=0)
    assert found.next is not None
    words = shlex.split(found.next)
    assert words[:3] == ["orchestrator", "run", str(tmp_path / "run2" / "experiment.yaml")]
    assert words[3:] == ["--only", f"id={MACHINE}/kprobe/noop", "--set", "benchmark.repeats=12"]
    assert found.cells[0].change == "undecided"
    shown = " ".join(orchestrator("compare").stdout.split())
    assert "[1] no verdict: found 5 and 5 samples; a 95 % interval needs 6 of each" in shown
    assert "To decide: orchestrator run" in shown
    # What was measured at two commits is measured at both again.
    both = [find_run(run, tmp_path / "lab") for run in (found.before.run, found.after.run)]
    commits = replace(compared_runs(both[0], both[1]), again=("compare", "--config", "x.yaml", "./a@v1", "./a@v2"))
    assert shlex.split(next_run(commits) or "") == ["orchestrator", *commits.again, *words[3:]]
    with monkeypatch.context() as patch:
        patch.setattr(program, "PROGRAM", "sh lab")
        assert shlex.split(next_run(commits) or "")[:3] == ["sh", "lab", "compare"]
    runs.add(timed([2000.0 + n for n in range(5)], table="list5"))
    assert "--set tables.list5.benchmark.repeats=" in str(answer(status=0).next)


def test_each_figure_has_its_unit_where_not_all_are_counts(runs: Runs) -> None:
    counted = [exact("kprobe", 1000), exact("kprobe", 1010)]
    times = [timed([value + n for n in range(8)], id="pentium4/timed/noop") for value in (1000.0, 2000.0)]
    pairs = [runs.add(*cells) for cells in zip(counted, times, strict=True)]
    for form in ("markdown", "github"):
        lines = orchestrator("compare", *pairs, "--format", form).stdout.splitlines()
        units = [line.rstrip(" |").rpartition("|")[2].strip() for line in lines if "1010" in line or "2003" in line]
        assert units[:2] == ["nsec", "instructions"]  # the largest change comes first
    assert {"nsec", "instructions"} <= set(orchestrator("compare", *pairs).stdout.split())
    counts = [runs.add(one) for one in counted]
    assert "instructions" not in orchestrator("compare", *counts).stdout


def test_hosts_count_for_times_only(runs: Runs) -> None:
    here, there = ({"sessions": [{"host": {"cpus": count}}], "boots": []} for count in (2, 8))
    for provenance in (here, there):
        runs.add(timed([1000.0 + n for n in range(6)]), provenance=provenance)
    assert [difference.what for difference in answer(status=0).differs] == ["host's cpus"]
    for provenance in (here, there):
        runs.add(exact("kprobe", 1000), provenance=provenance)
    assert answer(status=0).differs == []


def test_the_rest_is_counted(runs: Runs) -> None:
    before = runs.add(*(exact("none", 100, id=f"a/{n}") for n in range(9)))
    after = runs.add(*(exact("none", 101 + n, id=f"a/{n}") for n in range(9)))
    limited = orchestrator("compare", before, after, "--limit", "3").stdout
    assert "6 others" in limited
    assert "6 others" not in orchestrator("compare", before, after, "--limit", "0").stdout
    assert len(answer(before, after, "--limit", "3", status=1).cells) == 9


def test_what_cannot_be_compared_is_said(runs: Runs) -> None:
    exact_run = runs.add(exact("kprobe", 1036))
    times = runs.add(timed([1.0, 2.0]))
    message = refusal("compare", exact_run, times)
    assert "have no comparable cells" in message
    assert "different clocks: instructions and wall" in message
    other = runs.add(exact("kprobe", 1036, id="elsewhere"))
    message = refusal("compare", exact_run, other)
    assert "no two cells have the same id" in message
    assert f"{exact_run}:{MACHINE}/kprobe/noop" in message
    assert f"{other}:elsewhere" in message
    two = runs.add(exact("none", 1), exact("kprobe", 2), exact("jprobe", 3), exact("kprobe", 4, id="a/b/kprobe/x"))
    named = refusal("compare", f"{two}:none", f"{two}:kprobe")
    assert named.count(two) == 4  # the sentence, and the three cells that were named
    assert "jprobe" not in named
    empty = runs.add()
    assert f"no cell of run {empty} has an outcome yet" in refusal("compare", exact_run, empty)
    mixed = runs.add(exact("kprobe", 1036), timed([1.0, 2.0], id="t"))
    again = runs.add(exact("kprobe", 1036), exact("kprobe", 9, id="t"))
    shown = orchestrator("compare", mixed, again)
    assert shown.exit_code == 1
    assert "1 cell compared: 1 unchanged; 1 not compared." in shown.stdout
    assert "Not compared: t: different clocks: wall and instructions." in shown.stdout
    whole = answer(mixed, again, status=1)
    assert (whole.passes, whole.exceeded) == (False, False)
    (refused,) = whole.not_compared
    assert refused.reason == "different clocks: wall and instructions"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "b", "c"), "found 3 runs"),
        (("a", "b", "--kernels", "c", "d"), "found 2 runs"),
        (("--config", "x.yaml", "a"), "--config needs two kernels"),
        (("latest", "--set", "benchmark.repeats=3"), "--set, --kconfig and --make need --config"),
        (("latest", "--make", "CC=gcc-12"), "--set, --kconfig and --make need --config"),
        (("--config", "x.yaml", "a", "b", "--kconfig", "c"), "are for two commits of a kernel's tree"),
        (("--config", "x.yaml", "a", "./b@v1"), "one is a kernel, the other a commit"),
        (("./a@v1", "./a@v2"), "comparing commits needs an experiment to measure"),
        (("latest", "--only", "cup=x"), "unknown key 'cup'"),
        (("latest", "latest", "--only", "nothing"), "no cell matches"),
        (("nowhere", "latest"), "unknown run 'nowhere'"),
        (("latest:nothing",), "has no cell 'nothing'"),
    ],
)
def test_wrong_use_of_compare_is_refused(arguments: tuple[str, ...], words: str, runs: Runs) -> None:
    for _ in range(2):
        runs.add(exact("kprobe", 1000))
    assert words in refusal("compare", *arguments)


def test_a_cell_without_an_outcome_is_said(runs: Runs, lab: Path, tmp_path: Path) -> None:
    before = runs.add(exact("kprobe", 1000))
    with Store.open(lab) as store:
        entry = store.begin_run("x", [cell("kprobe").id, cell("none").id], digest="d", provenance={})
        store.record(entry.id, exact("kprobe", 1000))
    shown = orchestrator("compare", before, entry.id)
    assert f"1 cell of run {entry.id} has no outcome yet: it was interrupted." in shown.stdout
    assert answer(before, entry.id, status=0).after.unfinished == 1


def test_nothing_heavy_is_loaded_for_exact_counts(runs: Runs) -> None:
    for _ in range(2):
        runs.add(exact("kprobe", 1000))
    script = (
        "import sys\nfrom orchestrator.cli.main import app\n"
        "try: app(['compare'])\nexcept SystemExit: pass\n"
        "heavy = ('scipy', 'numpy', 'matplotlib', 'orchestrator.guest', 'orchestrator.benchmarks')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_run_that_is_compared_with_itself_is_named(runs: Runs) -> None:
    runs.add(exact("none", 409), exact("kprobe", 1036))
    run = runs.add(exact("none", 409), exact("kprobe", 1040))
    said = f"note: run {run} is compared with itself, so nothing can differ\n"
    for names in (["latest", "latest"], ["latest", run], ["latest:kprobe", "latest:kprobe"], [run, "latest:kprobe"]):
        result = orchestrator("compare", *names)
        assert (result.exit_code, result.stderr) == (0, said)
    for names in (["latest"], ["latest:none", "latest:kprobe"]):
        assert orchestrator("compare", *names).stderr == ""


# Is nothing called within budget where there was nothing to compare?


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


def test_runs_in_which_all_failed_cannot_be_compared(tmp_path: Path) -> None:
    for number in (1, 2):
        store_run(tmp_path / "lab", tmp_path / f"run{number}", failed("none", f"panic {number}"))
    result = compare()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no comparable cells" in result.stderr
    assert "panic 2" in result.stderr


def test_a_cell_that_failed_in_both_is_named(tmp_path: Path) -> None:
    for number in (1, 2):
        cells = [cell("none"), failed("kprobe", f"panic {number}")]
        store_run(tmp_path / "lab", tmp_path / f"run{number}", *cells)
    result = compare()
    assert result.exit_code == 1
    assert "2 cells compared: 2 unchanged; 1 without a number before." in " ".join(result.stdout.split())
    assert "Failed in both: pentium4/debian-686/kprobe/noop: panic 2" in " ".join(result.stdout.split())
    assert "Failed in both" in compare("--format", "markdown").stdout


@pytest.mark.parametrize(
    ("budgets", "passes"), [("", False), ("budgets: {kprobe: +5}\n", False), ("budgets: {kprobe: <=2000}\n", True)]
)
def test_a_cell_without_a_number_before_is_judged_by_its_own_limit_alone(
    tmp_path: Path, budgets: str, passes: bool
) -> None:
    store_run(tmp_path / "lab", tmp_path / "run1", cell("none"), failed("kprobe", "panic"))
    store_run(tmp_path / "lab", tmp_path / "run2", cell("none"), cell("kprobe"))
    (tmp_path / "run2" / "experiment.yaml").write_text(budgets)
    assert compare().exit_code == (0 if passes else 1)
    assert compare("--format", "markdown").stdout.startswith("\u2705" if passes else "\u274c")
    assert compare("--format", "github").stdout.count("\u2705" if passes else "\u274c") == 1
    assert json.loads(compare("--format", "json").stdout)["passes"] is passes


def test_a_kernel_is_not_compared_with_itself(tmp_path: Path) -> None:
    store_run(tmp_path / "lab", tmp_path / "run", cell("none"))
    result = compare("--kernels", "debian-686", "debian-686")
    assert result.exit_code == 2
    assert "debian-686 is named twice" in result.stderr


def test_a_cell_that_fails_where_it_was_unsupported_exceeds_its_budget(tmp_path: Path) -> None:
    store_run(tmp_path / "lab", tmp_path / "run1", failed("none", "not here", status="unsupported"))
    store_run(tmp_path / "lab", tmp_path / "run2", failed("none", "panic"))
    result = compare()
    assert (result.exit_code, "1 failed" in result.stdout) == (1, True)


@pytest.mark.parametrize(
    ("budgets", "end"), [("", "1 unchanged."), ("budgets: {none: +5}\n", "1 unchanged; within budget.")]
)
def test_a_budget_is_spoken_of_where_there_is_one(tmp_path: Path, budgets: str, end: str) -> None:
    for number in (1, 2):
        store_run(tmp_path / "lab", tmp_path / f"run{number}", cell("none"))
        (tmp_path / f"run{number}" / "experiment.yaml").write_text(f"name: x\n{budgets}")
    assert f"1 cell compared: {end}" in compare().stdout


# Do names of runs come and go as asked for, and does each command take them for a run?


def test_a_name_from_beginning_to_end(lab: Path, tmp_path: Path) -> None:
    first = store_run(lab, tmp_path / "first", cell("none"))
    second = store_run(lab, tmp_path / "second", cell("none"))
    assert orchestrator("baseline", "set", "before", first).stdout == f"before is {first}\n"
    assert orchestrator("report", "before", "--format", "json").stdout.count(first) == 1
    assert orchestrator("baseline", "set", "before").stdout == f"before is {second} (previously {first})\n"
    (header, row) = orchestrator("baseline", "list").stdout.splitlines()
    assert row.split()[:4] == ["before", second, "x", "complete"]
    assert header.split() == ["baseline", "run", "experiment", "status", "since"]
    assert completion.runs("") == ["latest", "before", second, first]
    assert completion.baselines("be") == ["before"]
    assert orchestrator("baseline", "remove", "before").exit_code == 0
    assert orchestrator("baseline", "list").stdout.splitlines() == [" ".join(header.split()).replace(" ", "  ")]
    assert completion.baselines("") == []


def test_times_are_local_as_in_the_list_of_runs(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(lab, tmp_path / "run", cell("none"))
    with patch("orchestrator.results.store.datetime") as clock:
        clock.now.return_value = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
        orchestrator("baseline", "set", "before")
    monkeypatch.setenv("TZ", "JST-9")  # POSIX: a bare system has no time zones by name
    time.tzset()
    try:
        assert orchestrator("baseline", "list").stdout.rstrip().endswith("complete  2026-03-02 08:30")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_one_cell_without_an_outcome_is_one(lab: Path) -> None:
    with Store.open(lab) as store:
        run = store.begin_run("x", [cell("none").id], digest="d", provenance={}).id
    told = f"1 cell of run {run} has no outcome yet: it was interrupted\n"
    assert orchestrator("baseline", "set", "before").stderr == told
    assert told in orchestrator("report").stderr
    with Store.open(lab) as store, store.working_on(run):
        assert f"1 cell of run {run} has no outcome yet: it is still running\n" in orchestrator("report").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "latest"], "'latest' is not a valid name for a baseline"),
        (["set", "2026"], "'2026' is not a valid name for a baseline"),
        (["set", "before"], "there is no run yet"),
        (["remove", "before"], "unknown baseline 'before'"),
    ],
)
def test_what_cannot_be_done(arguments: list[str], words: str, lab: Path) -> None:
    result = orchestrator("baseline", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert not lab.exists()


def test_a_run_of_another_machine_needs_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(tmp_path / "elsewhere", tmp_path / "run", cell("none"))
    result = orchestrator("baseline", "set", "before", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "unknown run" in result.stderr
