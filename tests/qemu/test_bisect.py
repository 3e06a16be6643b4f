# SPDX-License-Identifier: GPL-2.0-only
"""Is the commit found with which one's own probe regressed, with what it executes more, and is none measured twice?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from probe_repository import EXPERIMENT, KERNEL, git, make_repository

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "probes")


@pytest.mark.nightly("measures a history: eight seconds; a series of commits is measured every day")
def test_the_commit_that_made_a_probe_dearer(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    ends = ("--good", f"{tree}@HEAD~6", "--bad", f"{tree}@HEAD", tree / "own.yaml")
    finished = command.run("bisect", *ends, "--format", "json")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert [one["subject"] for one in found["candidates"]] == ["do ten things"]
    costs = {one["commit"]["subject"]: one["value"] for one in found["tried"]}
    assert costs["do ten things"] - costs["do one thing"] == 9
    assert costs["mend the build"] - costs["add a probe"] == 10
    assert costs.get("break the build") is None
    # By symbol: the nops are in the module's handler, and nowhere else.
    (difference,) = found["differences"]
    assert [(one["symbol"].split()[0], one["change"]) for one in difference["symbols"]] == [("kprobe_func", 9)]

    runs = len(list((tmp_path / "lab" / "runs").iterdir()))
    again = command.run("bisect", *ends)
    assert again.returncode == 0, again.stderr
    assert "First bad commit:" in again.stdout
    assert "do ten things" in again.stdout.splitlines()[0]
    skipped = sum(one["value"] is None for one in found["tried"])
    assert len(list((tmp_path / "lab" / "runs").iterdir())) == runs + skipped
    assert git(tree, "status", "--porcelain") == ""


def test_what_cannot_be_bisected_is_said(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    ends = ("--good", f"{tree}@HEAD~6", "--bad", f"{tree}@HEAD")
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(EXPERIMENT.replace("./own.c.j2", "kprobe"))
    named_nothing = command.refused("bisect", *ends, elsewhere)
    assert (named_nothing.returncode, "names nothing in" in named_nothing.stderr) == (2, True)
    no_cell = command.refused("bisect", *ends, tree / "own.yaml", "--cell", "jprobe")
    assert (no_cell.returncode, "no cells match 'jprobe'" in no_cell.stderr) == (2, True)


@pytest.mark.nightly("measures commits that cannot be bisected: five seconds")
def test_commits_between_which_nothing_can_be_found_are_said(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    same = command.run("bisect", "--good", f"{tree}@HEAD~6", "--bad", f"{tree}@HEAD~5", tree / "own.yaml")
    assert (same.returncode, "cost the same" in same.stderr) == (2, True)
    broken = command.run("bisect", "--good", f"{tree}@HEAD~6", "--bad", f"{tree}@HEAD~1", tree / "own.yaml")
    assert (broken.returncode, "has no number" in broken.stderr) == (1, True)
