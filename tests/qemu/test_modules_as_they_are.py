# SPDX-License-Identifier: GPL-2.0-only
"""Is a module measured as its author has it: a folder with a Kbuild, no counter of hits, nothing of the lab's?"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine, objects
from probe_repository import commit, git

from orchestrator.results.contract import CellRecord

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("debian-686")]

MODULES = Path(__file__).with_name("modules")
SINGLE = "obj-m := single.o\nsingle-y := ordinary.o ordinary_work.o\n"
EXPERIMENT = """\
name: mine
kernels: [debian-686]
machines: [{{cpu: pentium4}}]
probes: [{}]
benchmark: {{name: gtodbench, calls: 1000, repeats: 2}}
"""
SYSTEM = """\
name: beside
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes: [none, ./single]
benchmark: {name: ping-flood, packets: 100, repeats: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the modules of ``ordinary``, and the same in one module, ``single``."""
    for name in ("ordinary", "single"):
        shutil.copytree(MODULES / "ordinary", tmp_path / "mine" / name)
    (tmp_path / "mine" / "single" / "Kbuild").write_text(SINGLE)
    return tmp_path / "mine"


def measured(folder: Path, *probes: str, status: int = 0, name: str = "mine.yaml") -> dict[str, CellRecord]:
    """The cells of a run of some probes, by probe."""
    (folder / name).write_text(EXPERIMENT.format(", ".join(["none", *(f'"{probe}"' for probe in probes)])))
    command = CommandLine(folder / "lab")
    done = command.run("run", folder / name)
    assert done.returncode == status, done.stdout + done.stderr
    return command.cells()


def test_a_folder_is_a_row_with_its_parameters_and_its_proof(folder: Path) -> None:
    (folder / "unresolved").mkdir()
    (folder / "unresolved" / "Makefile").write_text("obj-m := unresolved.o\n")
    source = (MODULES / "ordinary" / "ordinary.c").read_text()
    (folder / "unresolved" / "unresolved.c").write_text(source.replace('"ordinary_work.h"', "<linux/module.h>"))
    (folder / "unresolved" / "ordinary_work.h").write_text("")
    shutil.copytree(folder / "single", folder / "unlinked")
    (folder / "unlinked" / "Kbuild").write_text("obj-m := ordinary.o\n")
    rows = ("./single/", "./single size=64", "./ordinary size=64", "./ordinary/:ordinary")
    wrong = ("./ordinary", "./unresolved", "./unlinked", "./single siez=1")
    cells = measured(folder, *rows, *wrong, status=1)

    one, many, chosen, named = (
        cells[probe] for probe in ("single", "single.size-64", "ordinary.size-64", "ordinary.ordinary")
    )
    for cell, module in ((one, "single"), (many, "single"), (chosen, "ordinary"), (named, "ordinary")):
        assert cell.status == "ok", cell.reason
        evidence = cell.evidence
        assert evidence is not None
        assert (evidence.mechanism, evidence.hits, evidence.calls, evidence.int3) == ("jump", 500, 500, 0)
        assert str(cell.parameters["entered"]).startswith(f"handler_pre [{module}]")
        assert cell.parameters["listed"] == "__ia32_sys_gettimeofday+0x5"
        assert "entered 500 times in 500 calls" in "".join(cell.notes)
    assert one.value is not None
    assert one.value < (many.value or 0)
    assert named.value is not None
    assert named.value < (chosen.value or 0)

    reasons = {probe: cells[probe].reason or "" for probe in ("ordinary", "unresolved", "unlinked", "single.siez-1")}
    assert "builds 2 modules: ordinary, ordinary_work" in reasons["ordinary"]
    assert f"{folder}/unresolved/unresolved.c:" in reasons["unresolved"]
    assert '"ordinary_work" [ordinary.ko] undefined!' in reasons["unlinked"]
    assert "unknown parameter 'siez'; allowed: size, symbol; did you mean 'size'?" in reasons["single.siez-1"]

    directory = next((folder / "lab" / "runs").iterdir())
    boot, *_ = json.loads((directory / "provenance.json").read_text())["boots"]
    probe = boot["inputs"]["pentium4/debian-686/ordinary.ordinary/noop"]["probe"]
    assert probe["name"] == "ordinary"
    assert {"Kbuild", "ordinary.c", "ordinary_work.c", "ordinary_work.h"} == boot["sources"][probe["key"]].keys()
    assert boot["modules"]["pentium4/debian-686/ordinary.ordinary/noop: ordinary_work"]["name"] == "ordinary_work"


@pytest.mark.nightly("each wrong module has a guest of its own: half a minute")
def test_a_wrong_module_fails_its_cell_with_the_reason(folder: Path) -> None:
    wrong = {
        "./single size=0": ("single.size-0", "a size of nothing is no size"),
        "./single size=x": ("single.size-x", "`x' invalid for parameter `size'"),
        "./single symbol=do_nanosleep": (
            "single.symbol-do_nanosleep",
            "the calls executed no function of module single",
        ),
        "./single symbol=nobody": ("single.symbol-nobody", "insmod: can't insert"),
    }
    cells = measured(folder, *wrong, "./single", status=1)
    for probe, words in wrong.values():
        assert (cells[probe].status, words in (cells[probe].reason or "")) == ("failed", True), cells[probe].reason
    never = cells["single.symbol-do_nanosleep"].reason or ""
    assert "its functions: " in never
    assert "handler_pre, ordinary_exit, ordinary_work" in never
    assert "the kernel lists probes at do_nanosleep+0x5" in never
    assert cells["single"].status == "ok"


@pytest.mark.nightly("another run: ten seconds")
def test_what_cannot_be_proved_is_said(folder: Path) -> None:
    command = CommandLine(folder / "lab")
    (folder / "mine.yaml").write_text(EXPERIMENT.format("none, ./single"))
    expected = {
        ("--set", "handlers=[count]"): ("unsupported", "so a hit does what it always does"),
        ("--set", "benchmark.hits=2"): ("failed", "500 calls should enter the handler of module single 1000 times"),
        ("--set", "clock=wall", "--set", "benchmark.repeats=12"): ("failed", "clock 'wall' counts no entries"),
    }
    for overrides, (status, words) in expected.items():
        command.run("run", folder / "mine.yaml", *overrides)
        cell = command.cells()["single"]
        assert (cell.status, words in (cell.reason or "")) == (status, True), cell.reason


@pytest.mark.nightly("a guest that works unattended: half a minute")
def test_a_folder_is_loaded_beside_a_whole_system(folder: Path) -> None:
    (folder / "system.yaml").write_text(SYSTEM)
    command = CommandLine(folder / "lab")
    done = command.run("run", folder / "system.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert command.cells()["single"].status == "ok"


@pytest.fixture
def tree(folder: Path) -> Path:
    """A repository with a module's folder and an experiment: what a hit does grows in the third of four commits."""
    git(folder, "init", "--quiet")
    shutil.rmtree(folder / "ordinary")
    (folder / "mine.yaml").write_text(EXPERIMENT.format("none, ./single"))
    work = folder / "single" / "ordinary_work.c"
    source = work.read_text()
    for subject, text in {
        "add a module": source,
        "say what it is": f"/* work */\n{source}",
        "do ten things": source.replace("nop", "; ".join(["nop"] * 10)),
        "say how many": source.replace("nop", "; ".join(["nop"] * 10)) + "/* ten */\n",
    }.items():
        work.write_text(text)
        commit(folder, subject)
    return folder


@pytest.mark.nightly("measures a folder at some commits: a minute")
def test_two_commits_of_a_folder(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    done = command.run("compare", "--config", tree / "mine.yaml", f"{tree}@HEAD~3", f"{tree}@HEAD", "--format", "json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = objects(done.stdout)
    assert vars(found.counts) == {"regressed": 1, "unchanged": 1}
    (probed, _) = found.cells
    assert probed.value.difference == 9
    assert [(symbol.symbol, symbol.change) for symbol in probed.symbols] == [("ordinary_work [single]", 9)]
    assert [(change.what, change.detail) for change in found.differs[1:]] == [("probe single", ["ordinary_work.c"])]

    ends = ("--good", f"{tree}@HEAD~3", "--bad", f"{tree}@HEAD", tree / "mine.yaml")
    done = command.run("bisect", *ends, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [load["subject"] for load in json.loads(done.stdout)["candidates"]] == ["do ten things"]
