# SPDX-License-Identifier: GPL-2.0-only
"""Are two commits of a tree built, measured and compared, whether it is a probe's tree or a kernel's?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine, objects
from probe_repository import EXPERIMENT, KERNEL, commit, git, make_repository

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

OTHER = "lab-i386-up-hook"
BUILDS_BY_COPYING = """\
olddefconfig:;
bzImage modules: copied
copied:
\tcp -a --remove-destination $(shell cat built-tree)/. .
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "probes")


def compared(command: CommandLine, *arguments: str | Path, status: int) -> Any:
    done = command.run("compare", *arguments, "--format", "json")
    assert done.returncode == status, done.stdout + done.stderr
    return objects(done.stdout)


def test_two_commits_of_a_probe(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    config = ("--config", tree / "own.yaml")
    found = compared(command, *config, f"{tree}@HEAD~6", f"{tree}@HEAD", status=1)
    assert vars(found.counts) == {"regressed": 1, "unchanged": 1}
    (probed, _) = found.cells
    assert (probed.value.difference, probed.overhead.difference) == (10, 10)
    assert [(symbol.symbol.split()[0], symbol.change) for symbol in probed.symbols] == [("kprobe_func", 10)]
    assert [difference.what for difference in found.differs] == ["commit", "probe own.c.j2"]
    subjects = [side.partition(" ")[2] for side in (found.differs[0].before, found.differs[0].after)]
    assert subjects == ["add a probe", "mend the build"]
    assert found.differs[1].detail == ["work.h"]
    # The other way round, from what is known: neither commit is measured again.
    runs = sorted((tmp_path / "lab" / "runs").iterdir())
    again = compared(command, *config, f"{tree}@HEAD", f"{tree}@HEAD~6", status=0)
    assert vars(again.counts) == {"improved": 1, "unchanged": 1}
    assert sorted((tmp_path / "lab" / "runs").iterdir()) == runs
    assert git(tree, "status", "--porcelain") == ""
    # The runs are stored: the same answer without measuring, and without the experiment or the tree.
    stored = compared(command, found.before.run, found.after.run, status=1)
    assert stored.cells == found.cells


@pytest.mark.nightly("a build that fails; test_bisect.py has that commit every day, and test_compare.py such a module")
def test_a_commit_that_does_not_build_has_failed(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    broken = compared(command, "--config", tree / "own.yaml", f"{tree}@HEAD~2", f"{tree}@HEAD~1", status=1)
    assert vars(broken.counts) == {"failed": 1, "unchanged": 1}


def test_what_cannot_be_compared_is_said(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    config = ("--config", tree / "own.yaml")
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(EXPERIMENT.replace("./own.c.j2", "kprobe"))
    first, last = f"{tree}@HEAD~6", f"{tree}@HEAD"
    refused = {
        "the experiment names nothing in": ("--config", elsewhere, first, last),
        "name two kernels, or two commits of one tree": (*config, KERNEL, last),
        "are the same commit": (*config, last, f"{tree}@main"),
        "has no commit 'nowhere'": (*config, first, f"{tree}@nowhere"),
        "--config CONFIG": (first, last),
    }
    for expected, arguments in refused.items():
        done = command.refused("compare", *arguments)
        assert (done.returncode, expected in done.stderr, done.stdout) == (2, True, ""), done.stderr


@pytest.mark.kernels(OTHER)
def test_two_commits_of_a_kernel(workshop: BuildContext, tmp_path: Path) -> None:
    """A tree that looks like a kernel's, and whose make copies a kernel of the lab's instead of building one."""
    top = tmp_path / "linux"
    for file in ("Kconfig", "arch/x86/Makefile"):
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        (top / file).touch()
    (top / "Makefile").write_text(BUILDS_BY_COPYING)
    git(tmp_path, "init", "--quiet", str(top))
    for name in (KERNEL, OTHER):
        built = ready_kernel(workshop, kernels()[name]).headers
        (top / "built-tree").write_text(f"{built}\n")
        commit(top, f"be {name}")
    config = tmp_path / "config"
    shutil.copy(ready_kernel(workshop, kernels()[KERNEL]).headers / ".config", config)

    # The experiment names another kernel: it is measured on the tree's.
    command = CommandLine(tmp_path / "lab")
    arguments = ("--config", QUICKSTART, *REDUCED, "--only", "kprobe", "--kconfig", config)
    found = compared(command, *arguments, f"{top}@HEAD~1", f"{top}@HEAD", status=1)
    by_probe = {str(cell.after).split("/")[2]: cell for cell in found.cells}
    plain, probed = by_probe["none"], by_probe["kprobe"]
    assert plain.value.difference == probed.value.difference
    assert (plain.value.difference or 0) > 0
    assert probed.overhead.difference == 0
    assert [symbol.symbol for symbol in plain.symbols] == ["__do_fast_syscall_32"]
