# SPDX-License-Identifier: GPL-2.0-only
"""Is each commit of a series measured once, in order, with what it executes more, and are its wrong ones rows?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from probe_repository import KERNEL, commit, git, make_repository

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


def test_each_commit_is_a_row_and_none_is_measured_twice(tmp_path: Path) -> None:
    tree, command = make_repository(tmp_path / "probes"), CommandLine(tmp_path / "lab")
    series = ("series", f"{tree}@HEAD~5..HEAD~1", "--experiment", tree / "own.yaml")
    finished = command.run(*series, "--at-most", "+5", "--format", "json")
    assert finished.returncode == 1, finished.stderr  # one exceeds its budget, one does not build
    found = json.loads(finished.stdout)
    rows = {one["subject"]: {cell["id"].split("/")[-2]: cell for cell in one["cells"]} for one in found["commits"]}
    assert list(rows) == ["do one thing", "do ten things", "say how many", "break the build"]
    probed = [cells["own.c.j2"] for cells in rows.values()]
    assert [one["change"] for one in probed] == [1, 9, 0, None]
    assert [bool(one["exceeded"]) for one in probed] == [False, True, True, True]
    assert [(one["symbol"].split()[0], one["change"]) for one in probed[1]["symbols"]] == [("kprobe_func", 9)]
    assert [cells["none"]["change"] for cells in rows.values()] == [0] * 4
    assert probed[3]["status"] == "failed"

    runs = len(list((tmp_path / "lab" / "runs").iterdir()))
    cover = command.run(*series, "--format", "cover")
    assert "4/4, own.c.j2: failed: work.h:3: module own_own does not build: " in cover.stdout
    assert len(list((tmp_path / "lab" / "runs").iterdir())) == runs  # nor is what does not compile
    assert git(tree, "status", "--porcelain") == ""

    # The same measurement in another form: nothing is built or measured, not even what failed.
    stored = command.run(*series, "--at-most", "5", "--format", "json", "--stored")
    assert (stored.returncode, stored.stdout) == (1, finished.stdout), stored.stderr
    assert "building" not in stored.stderr
    longer = command.run("series", f"{tree}@HEAD~5..HEAD", "--experiment", tree / "own.yaml", "--stored")
    assert (longer.returncode, "it is not measured yet" in longer.stdout) == (1, True), longer.stderr
    (tree / "own.yaml").write_text((tree / "own.yaml").read_text().replace("calls: 100", "calls: 200"))
    changed = command.run(*series, "--stored")
    assert (changed.returncode, "hint: leave out --stored to measure it" in changed.stderr) == (1, True)
    assert len(list((tmp_path / "lab" / "runs").iterdir())) == runs


def test_what_a_series_adds_is_new_and_not_measured_before(tmp_path: Path) -> None:
    tree, command = make_repository(tmp_path / "probes"), CommandLine(tmp_path / "lab")
    (tree / "new.c.j2").write_text((tree / "own.c.j2").read_text())
    (tree / "own.yaml").write_text((tree / "own.yaml").read_text().replace("own.c.j2]", "own.c.j2, ./new.c.j2]"))
    commit(tree, "add a second probe")
    series = ("series", f"{tree}@HEAD~1..HEAD", "--experiment", tree / "own.yaml", "--at-most", "+0")
    finished = command.run(*series)
    assert finished.returncode == 0, finished.stderr
    assert "new.c.j2" in finished.stdout
    found = json.loads(command.run(*series, "--format", "json", "--stored").stdout)
    assert [cell["id"].split("/")[-2] for cell in found["base"]["cells"]] == ["none", "own.c.j2"]
    compared = command.run("compare", "--config", tree / "own.yaml", f"{tree}@HEAD~1", f"{tree}@HEAD")
    assert compared.returncode == 0, compared.stderr
    assert "1 new" in compared.stdout
