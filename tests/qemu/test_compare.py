# SPDX-License-Identifier: GPL-2.0-only
"""Does ``compare`` say by how many instructions a module of one's own became dearer, and where, whatever is allowed?"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine

from orchestrator.paths import data_dir

KERNEL = "lab-i386-up"
CELL = f"pentium4/{KERNEL}/own.c.j2/noop"
HANDLER = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"
EXPERIMENT = f"""\
name: own
kernels: [{KERNEL}]
machines: [{{cpu: pentium4}}]
probes: [none, ./own.c.j2]
benchmark: {{name: gtodbench, calls: 1000, repeats: 2}}
profile: [symbols]
"""

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


class OwnModule:
    """The lab's own kprobe as a user's module, whose handler executes so many ``nop`` in addition."""

    def __init__(self, folder: Path, command: CommandLine) -> None:
        folder.mkdir()
        self._folder, self._command = folder, command
        source = (data_dir("kmods") / "templates" / "kprobe.c.j2").read_text()
        assert HANDLER in source
        (folder / "own.c.j2").write_text('#include "work.h"\n' + source.replace(HANDLER, f"{HANDLER}\twork();\n"))

    def measured(self, nops: int, more: str = "") -> None:
        """Measure it with ``more`` in the experiment."""
        body = '\tasm volatile("nop");\n' * nops
        (self._folder / "work.h").write_text(f"static inline void work(void)\n{{\n{body}}}\n")
        (self._folder / "own.yaml").write_text(EXPERIMENT + more)
        ended = self._command.run("run", self._folder / "own.yaml")
        assert ended.returncode == 0, ended.stderr


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "lab")


@pytest.fixture
def own(tmp_path: Path, command: CommandLine) -> OwnModule:
    return OwnModule(tmp_path / "own", command)


def answer(ended: subprocess.CompletedProcess[str]) -> Any:
    assert ended.returncode in (0, 1), ended.stderr
    return json.loads(ended.stdout)


def test_three_instructions_more(own: OwnModule, command: CommandLine) -> None:
    own.measured(0)
    assert command.run("baseline", "set", "before-the-patch", "latest").returncode == 0
    own.measured(3)
    ended = command.run("compare", "before-the-patch", "latest", "--format", "json")
    found = answer(ended)
    assert (ended.returncode, found["beyond"], found["counts"]) == (1, True, {"dearer": 1, "unchanged": 1})
    (dearer,) = [one for one in found["cells"] if one["change"] == "dearer"]
    assert dearer["before"] == dearer["after"] == CELL
    assert (dearer["value"]["difference"], dearer["overhead"]["difference"]) == (3, 3)
    # By symbol: the instructions are in the module's handler, and nowhere else.
    assert [(one["symbol"], one["change"]) for one in dearer["symbols"]] == [("kprobe_func [own_own]", 3)]
    # The module was changed, and nothing else.
    assert [(one["what"], one["detail"]) for one in found["differs"]] == [("module own_own", ["work.h"])]

    # With one run named, the previous complete one of the experiment is what it is compared with.
    for arguments in (("latest",), ("before-the-patch:own.c.j2", "latest:own.c.j2")):
        ended = command.run("compare", *arguments)
        assert ended.returncode == 1, ended.stderr
        lines = [line.split() for line in ended.stdout.splitlines()]
        assert [words for words in lines if "kprobe_func" in words and "+3" in words], ended.stdout


def test_a_budget_allows_as_much_and_no_more(own: OwnModule, command: CommandLine) -> None:
    own.measured(1)
    own.measured(3, "budgets: {own.c.j2: {overhead: +2}}\n")
    assert command.run("compare", "latest").returncode == 0
    own.measured(4, "budgets: {own.c.j2: {overhead: +2}}\n")
    # The third run has one instruction more than the second, and three more than the first.
    assert command.run("compare", "latest").returncode == 0
    runs = sorted(one.name for one in (command.lab / "runs").iterdir())
    ended = command.run("compare", runs[0], runs[2])
    assert ended.returncode == 1, ended.stdout
    assert "beyond" in ended.stdout


def test_the_same_again_is_unchanged(own: OwnModule, command: CommandLine) -> None:
    own.measured(2)
    own.measured(2)
    ended = command.run("compare", "latest", "--format", "json")
    found = answer(ended)
    assert (ended.returncode, found["counts"], found["differs"]) == (0, {"unchanged": 2}, [])


@pytest.mark.kernels("debian-686")
def test_two_kernels_are_measured_and_compared(command: CommandLine) -> None:
    probes = ("--set", "probes=[none, kprobe]")
    ended = command.run("compare", "--config", QUICKSTART, *REDUCED, *probes, KERNEL, "debian-686", "--format", "json")
    found = answer(ended)
    assert ended.returncode == 1
    changes = {one["after"]: one["value"]["difference"] for one in found["cells"]}
    assert changes == {"pentium4/debian-686/none/noop": 62, "pentium4/debian-686/kprobe/noop": 1048 - 889}
    # The same run, compared once more as it is stored, the other way round.
    again = answer(command.run("compare", "latest", "--kernels", "debian-686", KERNEL, "--format", "json"))
    assert {one["after"]: one["value"]["difference"] for one in again["cells"]} == {
        f"pentium4/{KERNEL}/none/noop": -62,
        f"pentium4/{KERNEL}/kprobe/noop": 889 - 1048,
    }
    assert again["beyond"] is False
