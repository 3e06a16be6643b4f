# SPDX-License-Identifier: GPL-2.0-only
"""Does a comparison of real runs find exactly the instructions that somebody has added, and who executes them?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine, objects
from documentation import ROOT, blocks

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

DJPROBE = Path(__file__).parents[2] / "kmods" / "templates" / "djprobe.c.j2"
HANDLER = "static void djprobe_func(struct djprobe *djp, struct pt_regs *regs)\n{\n"
EXPERIMENT = """\
name: mine
kernels: [lab-i386-up]
machines: [{{cpu: pentium4}}]
probes: [none, ./mine.c.j2]
benchmark: {{name: gtodbench, repeats: 2, calls: 100}}
profile: [symbols]
{budgets}
"""


class Mine:
    """An experiment with a module of the user's own, whose handler executes so many nops."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = CommandLine(folder / "lab")

    def run(self, nops: int, budgets: str = "") -> None:
        text = DJPROBE.read_text()
        assert HANDLER in text
        added = HANDLER + "".join('\tasm volatile("nop");\n' for _ in range(nops))
        (self.folder / "mine.c.j2").write_text(text.replace(HANDLER, added))
        (self.folder / "mine.yaml").write_text(EXPERIMENT.format(budgets=budgets))
        done = self.command.run("run", self.folder / "mine.yaml")
        assert done.returncode == 0, done.stderr

    def compare(self, *arguments: str | Path, status: int) -> Any:
        done = self.command.run("compare", *arguments, "--format", "json")
        assert done.returncode == status, done.stdout + done.stderr
        return objects(done.stdout)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Mine:
    """The experiment, measured without nops at first, and then with three."""
    mine = Mine(tmp_path_factory.mktemp("mine"))
    mine.run(nops=0)
    assert mine.command.run("baseline", "set", "before").returncode == 0
    mine.run(nops=3)
    return mine


def test_three_instructions_more_in_a_handler(mine: Mine) -> None:
    found = mine.compare("before", "latest", status=1)
    assert vars(found.counts) == {"regressed": 1, "unchanged": 1}
    (cell, baseline) = found.cells
    assert cell.after == "pentium4/lab-i386-up/mine.c.j2/noop"
    assert (cell.value.difference, cell.overhead.difference) == (3.0, 3.0)
    assert [(symbol.symbol, symbol.change) for symbol in cell.symbols] == [("djprobe_func [own_mine]", 3.0)]
    assert cell.exceeded == ["value +3 instructions, allowed +0"]
    assert baseline.change == "unchanged"
    assert [(change.what, change.detail) for change in found.differs] == [("probe mine.c.j2", ["mine.c.j2"])]
    # B alone is compared with the run before it, which is the same one here.
    assert mine.compare("latest", status=1) == found
    assert mine.compare("latest", "before", status=0).cells[0].change == "improved"
    table = mine.command.run("compare").stdout
    assert "djprobe_func [own_mine]" in table
    assert "different probe mine.c.j2: mine.c.j2 changed" in table


def test_a_module_that_no_longer_builds_has_failed_until_it_is_mended(mine: Mine) -> None:
    text = (mine.folder / "mine.c.j2").read_text()
    (mine.folder / "mine.c.j2").write_text(text.replace(HANDLER, HANDLER + "\tmissing();\n"))
    assert mine.command.run("run", mine.folder / "mine.yaml").returncode == 1
    found = mine.compare(status=1)
    assert vars(found.counts) == {"failed": 1, "unchanged": 1}
    assert found.cells[0].exceeded == ["it failed"]
    mine.run(nops=3, budgets="budgets: {mine.c.j2: +3, none: {value: +0, overhead: +1%}}")
    fixed = mine.compare(status=1)  # nobody knows what it cost before
    assert vars(fixed.counts) == {"fixed": 1, "unchanged": 1}
    assert (fixed.exceeded, fixed.cells[0].unproved) == (False, "it has no number before")
    assert not mine.compare("before", "latest", status=0).exceeded


@pytest.mark.kernels("lab-i386-up-hook")
def test_two_kernels_measured_and_compared(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    kernels = ("lab-i386-up", "lab-i386-up-hook")
    arguments = ("--config", QUICKSTART, *REDUCED, "--only", "kprobe", "--format", "json", *kernels)
    done = command.run("compare", *arguments)
    assert done.returncode == 1, done.stderr
    found = objects(done.stdout)
    by_cell: dict[str | None, Any] = {cell.before: cell for cell in found.cells}
    plain, probed = (by_cell[f"pentium4/lab-i386-up/{probe}/noop"] for probe in ("none", "kprobe"))
    assert plain.value.difference == probed.value.difference > 0
    assert probed.overhead.difference == 0
    assert [symbol.symbol for symbol in plain.symbols] == ["__do_fast_syscall_32"]
    stored = command.run("compare", "--kernels", *kernels, "--format", "json")
    assert (stored.returncode, objects(stored.stdout)) == (1, found)


@pytest.mark.nightly("the page's own kernels: three seconds")
def test_the_page_s_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands, shown, *_ = blocks(ROOT / "docs" / "comparing.md")[1:]
    command = CommandLine(tmp_path / "lab")
    measure, compare = commands.commands()
    done = command.run(*measure)
    assert done.returncode == 0, done.stderr
    printed = command.run(*compare)
    assert printed.returncode == 0, printed.stderr
    assert [line.rstrip() for line in printed.stdout.strip().splitlines()] == shown.text.strip().splitlines()
