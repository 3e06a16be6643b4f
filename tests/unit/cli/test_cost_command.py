# SPDX-License-Identifier: GPL-2.0-only
"""Does ``cost`` print the experiment that it would run, and refuse what is wrong before it starts anything?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from called_commands import orchestrator, refusal
from host_toolchain import a_kernel

from orchestrator.cost.call_finder import NamedCalls
from orchestrator.cost.counted_table import CountedCall, CountedTable
from orchestrator.cost.request import CostRequest
from orchestrator.errors import LabError
from orchestrator.library.lab import Lab

TABLE = CountedTable(
    calls={
        "getppid": CountedCall(functions={"__x64_sys_getppid": 1}),
        "read_zero": CountedCall(functions={"vfs_read": 1}),
    }
)


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab of its own, a kernel that is not built, and what calls are known to enter on it."""
    monkeypatch.setattr("orchestrator.cost.request.ready_kernel", lambda _, spec: a_kernel(spec.name))
    monkeypatch.setattr("orchestrator.cost.call_finder.counted_part", lambda *_: TABLE)
    for name in ("lab", "cache"):
        monkeypatch.setenv(f"ORCHESTRATOR_{name.upper()}", str(tmp_path / name))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "lab"


def test_the_experiment_is_printed_and_nothing_is_kept(lab: Path) -> None:
    Path("reads.bt").write_text("// reads\nkprobe:vfs_read { @ = count(); }\n")
    Path("own.c").touch()
    done = orchestrator("cost", "reads.bt", "kprobe", "--print")
    assert done.exit_code == 0, done.output
    written = yaml.safe_load(done.stdout)
    assert (written["name"], written["kernels"]) == ("cost-reads", ["debian-amd64"])
    assert [table["probes"] for table in written["tables"].values()] == [
        ["none", "./reads.bt"],
        ["none", "kprobe"],
    ]
    done = orchestrator("cost", "./own.c", "--call", "read", "--print")
    assert yaml.safe_load(done.stdout)["probes"] == ["none", "./own.c"]
    assert not list(lab.glob("runs/*"))


def test_subject_named_twice_is_measured_once() -> None:
    done = orchestrator("cost", "kprobe", "kprobe", "--kernels", "6.1, debian-amd64,6.12", "--print")
    written = yaml.safe_load(done.stdout)
    assert (written["kernels"], written["probes"]) == (["debian-amd64", "debian-amd64@6.12"], ["none", "kprobe"])


@pytest.mark.parametrize(
    "text", ["kprobe: +5\n'*': {overhead: <=300}\n", "budgets: {kprobe: +5, '*': {overhead: <=300}}\n"]
)
def test_budgets_of_a_file_are_the_experiments(text: str) -> None:
    Path("budgets.yaml").write_text(text)
    done = orchestrator("cost", "kprobe", "--budget", "budgets.yaml", "--print")
    assert yaml.safe_load(done.stdout)["budgets"] == {"kprobe": "+5", "*": {"overhead": "<=300"}}


def test_a_limit_is_a_budget_of_each_subject() -> None:
    done = orchestrator("cost", "kprobe", "kretprobe", "--at-most", "1234567.5", "--print")
    limit = {"overhead": "<=1234567.5"}
    assert yaml.safe_load(done.stdout)["budgets"] == {
        f"probe={name},kernel=debian-amd64": limit for name in ("kprobe", "kretprobe")
    }


def test_each_line_and_file_has_a_name_of_its_own(lab: Path) -> None:
    action = "{ @ = count(); }"
    filters = ("write /pid > 1/", "write /pid < 1/", "read /pid > 2/")
    files = [f"./{name}.bt" for name in ("Reads", "読む1", "書く1", "-", "x" * 70, "x" * 71)]
    for name in files:
        Path(name).write_text(f"kprobe:vfs_read {action}")
    names = []
    for subject in (*(f"bpftrace: kprobe:vfs_{word} {action}" for word in filters), *files):
        done = orchestrator("cost", subject, "--print")
        assert done.exit_code == 0, done.output
        names.append(yaml.safe_load(done.stdout)["name"])
    assert names[0].startswith("cost-bpftrace-kprobe-vfs-write-pid-1-")
    assert names[3] == "cost-reads"
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9][a-z0-9-]{0,63}", name) for name in names)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kprob"], "unknown probe or file 'kprob'"),
        (["none"], "'none' has no cost"),
        (["gone.bpf.c"], "this file does not exist"),
        (["gone.bt"], "gone.bt: cannot be read: no such file or directory"),
        (["own.c"], "own.c on debian-amd64: which call hits it is not known hint: name a call that does"),
        (["own.c", "--call", "raed"], "--call: unknown call 'raed'"),
        (["own.c", "--call", "read", "--against", "nothing"], "--against: 'nothing' is neither a file, nor a run"),
        (["own.c", "--call", "read", "--against", "own.c"], "--against: own.c would be compared with itself"),
        (["kprobe", "--point", "vfs_raed"], "vfs_raed: no known call enters it hint: known calls enter vfs_read"),
        (["kprobe", "--workload", "gone.c", "--point", "vfs_read"], "gone.c'; this file does not exist"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(words: list[str], said: str, lab: Path) -> None:
    Path("own.c").touch()
    assert said in refusal("cost", *words)
    assert not list(lab.glob("runs/*"))
    assert sorted(path.name for path in Path().iterdir()) == ["own.c"]


def test_a_reference_that_is_nothing_is_said_before_a_kernel_is_ready(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready(*_: object) -> object:
        raise AssertionError("something was prepared")

    monkeypatch.setattr("orchestrator.cost.request.ready_kernel", ready)
    Path("own.c").touch()
    assert "'nothing' is neither a file, nor a run" in refusal(
        "cost", "own.c", "--call", "read", "--against", "nothing"
    )


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        ({"at_most": -1.0}, "at_most: found '-1.0'; expected +N or +N%"),
        ({"at_most": float("nan")}, "hint: for example at_most=300"),
        ({"calls": NamedCalls(call="raed")}, "call: unknown call 'raed'"),
        ({"kernels": [" "]}, "kernels: names no kernel\nhint: for example kernels=6.1,7.3"),
        ({}, "name a call that does: call=CALL, or workload=FILE.c"),
        ({"against": "nothing"}, "against: 'nothing' is neither a file, nor a run, nor a commit"),
    ],
)
def test_a_program_is_told_of_its_arguments_and_not_of_options(request_of: dict[str, Any], said: str) -> None:
    Path("own.c").touch()
    with pytest.raises(LabError) as refused:
        Lab(offline=True).cost(CostRequest(["own.c"], **request_of))
    assert said in str(refused.value)
    assert "--" not in str(refused.value)
