# SPDX-License-Identifier: GPL-2.0-only
"""Does each case of ``cost_cases`` have its costs, or the sentence that refuses it, and is nothing left behind?"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import CommandLine
from measured_cases import FOLDERS, ExpectedCell, Strict, Texts, differences, in_place
from needed_images import needed_image
from pydantic import Field, JsonValue

CASES = Path(__file__).with_name("cost_cases")
EMPTY = """\
char LICENSE[] __attribute__((section("license"))) = "GPL";
__attribute__((section("SECTION"))) int prog(void *context) { return 0; }
"""

pytestmark = pytest.mark.qemu


class CostCase(Strict):
    """Words of ``lab cost``, and the costs or what is said instead. Costs are named PROGRAM or KERNEL/PROGRAM.

    Programs that are measured together are named PROGRAM+PROGRAM, those that calls run.
    """

    name: str
    words: tuple[str, ...] = ()
    nightly: str | None = None
    image: str | None = Field(default=None, description="which has to be in the cache")
    section: str | None = Field(default=None, description="${object} has an empty program in this section")
    files: Mapping[str, str] = Field(default={}, description="${NAME} is the path of a file with this text")
    status: int = 0
    costs: Mapping[str, ExpectedCell] = {}
    says: Texts | None = Field(default=None, description="on standard error")
    report: Texts | None = Field(default=None, description="in the table of the stored run, in one line")
    equal: tuple[tuple[str, ...], ...] = ()
    sums: Mapping[str, tuple[str, ...]] = Field(default={}, description="costs whose instructions are those of others")


class CostFile(Strict):
    """The cases of one subject, and words that each has."""

    about: str
    words: tuple[str, ...] = ()
    cases: tuple[CostCase, ...]


def cost_cases() -> Iterator[object]:
    for file in sorted(CASES.glob("*.yaml")):
        group = CostFile.model_validate(yaml.safe_load(file.read_text()))
        for case in group.cases:
            whole = case.model_copy(update={"words": (*case.words, *group.words)})
            marks = [] if case.nightly is None else [pytest.mark.nightly(case.nightly)]
            yield pytest.param(whole, marks=marks, id=f"{file.stem}: {case.name}")


@pytest.mark.parametrize("case", list(cost_cases()))
def test_cost(case: CostCase, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if case.image is not None:
        needed_image(request.config, case.image)
    monkeypatch.chdir(tmp_path)
    paths = {**FOLDERS, **given(case, tmp_path)}
    command = CommandLine(tmp_path / "lab")
    done = command.run("cost", *(str(in_place(word, paths)) for word in case.words), "--format", "json")
    assert done.returncode == case.status, done.stderr
    assert case.says is None or case.says.lacking(done.stderr) == [], done.stderr
    assert command.qemus() == []
    if not case.costs:
        assert done.stdout == ""
        assert not list(command.lab.glob("runs/*"))
        return
    costs = json.loads(done.stdout)["costs"]
    for cost in costs:
        check(cost, expected_of(cost, case.costs))
    missing = [name for name in case.costs if name != "*" and not named(costs, name)]
    assert costs
    assert missing == []
    if case.report is not None:
        assert case.report.lacking(" ".join(command.run("report", "latest").stdout.split())) == []
    for names in case.equal:
        assert len({cost["instructions"] for name in names for cost in named(costs, name)}) == 1, names
    for name, parts in case.sums.items():
        for whole in named(costs, name):
            every = [cost for part in parts for cost in named(costs, part) if cost["kernel"] == whole["kernel"]]
            assert whole["instructions"] == sum(cost["instructions"] for cost in every), name


def given(case: CostCase, folder: Path) -> Mapping[str, str]:
    """The case's files, by what stands for their paths."""
    for name, text in case.files.items():
        (folder / name).write_text(text)
    if case.section is not None:
        argv = ["clang", "-O2", "-target", "bpf", "-c", "-x", "c", "-o", str(folder / "object.bpf.o"), "-"]
        subprocess.run(argv, input=EMPTY.replace("SECTION", case.section), text=True, check=True)
    return {"object": str(folder / "object.bpf.o"), **{name: str(folder / name) for name in case.files}}


def named(costs: Sequence[Mapping[str, Any]], name: str) -> Sequence[Mapping[str, Any]]:
    """The costs of a program, on each kernel or on one."""
    return [cost for cost in costs if name in (program_of(cost), f"{cost['kernel']}/{program_of(cost)}")]


def program_of(cost: Mapping[str, Any]) -> str | None:
    """The cost's program, or those that are measured together."""
    together = "+".join(program["name"] for program in cost["programs"])
    return together or cost["program"]


def expected_of(cost: Mapping[str, Any], expected: Mapping[str, ExpectedCell]) -> ExpectedCell:
    """What is expected of a cost: of its program on this kernel, else of its program, else of ``*``."""
    program = program_of(cost)
    for name in (f"{cost['kernel']}/{program}", program, "*"):
        if name is not None and name in expected:
            return expected[name]
    raise AssertionError(f"nothing is expected of {cost['kernel']}/{program}: {cost}")


def check(cost: Mapping[str, Any], expected: ExpectedCell) -> None:
    assert cost["status"] == expected.status, cost
    for texts in filter(None, (expected.failed, expected.unsupported)):
        assert texts.lacking(cost["reason"]) == [], cost["reason"]
        assert (cost["instructions"], cost["hits"]) == (None, None)
    if expected.ok is not None:
        fields: dict[str, JsonValue] = {"hits": 1000, "exceeded": [], "instructions": {"above": 0}, **expected.ok}
        assert list(differences(fields, cost)) == [], cost
