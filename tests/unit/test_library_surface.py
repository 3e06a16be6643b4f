# SPDX-License-Identifier: GPL-2.0-only
"""What ``import orchestrator`` gives to a program, without a guest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from record_builders import cell, failed
from stored_profiles import store_run

import orchestrator
from orchestrator.errors import ConfigError, HostError, UsageError

CONTENT: dict[str, Any] = {
    "name": "own",
    "kernels": ["debian-686"],
    "machines": [{"cpu": "pentium4"}],
    "probes": ["none", "kprobe"],
    "benchmark": {"name": "gtodbench"},
}


def test_an_import_loads_nothing() -> None:
    program = "import orchestrator, sys; print([name for name in sys.modules if name.startswith('orchestrator.')])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_no_other() -> None:
    assert {*orchestrator.__all__} <= {*dir(orchestrator)}
    assert [name for name in orchestrator.__all__ if getattr(orchestrator, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="no attribute 'lap'"):
        _ = orchestrator.lap  # type: ignore[attr-defined]


def test_an_experiment_is_the_same_from_a_file_and_a_program(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\nkernels: [debian-686]\nmachines: [{cpu: pentium4}]\nprobes: [none, kprobe]\n"
        "benchmark: {name: gtodbench}\n"
    )
    lab = orchestrator.Lab()
    assert lab.build(CONTENT).digest() == lab.load(file).digest()
    assert lab.load(file, ["benchmark.calls=7"]).digest() != lab.load(file).digest()


def test_any_text_of_a_file_is_text_of_a_program() -> None:
    text = "\U0001f40e \u00e9 \u4e2d"
    assert orchestrator.Lab().build({**CONTENT, "description": text}).heading.description == text
    orchestrator.Lab().build({**CONTENT, "description": "\u00e9" * 1000})


@pytest.mark.parametrize(("jobs", "fleet"), [(0, None), (-1, None), (65, None), (2, "mine")])
def test_a_wrong_number_of_guests_is_refused_before_a_run(lab: Path, jobs: int, fleet: str | None) -> None:
    own_lab = orchestrator.Lab(jobs=jobs, fleet=fleet)
    with pytest.raises(UsageError, match=r"expected 1 to 64|a fleet's workers decide"):
        own_lab.run(own_lab.build(CONTENT))
    assert not lab.exists()


def test_paths_are_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.c").write_text("")
    text = orchestrator.Lab().build({**CONTENT, "probes": ["none", Path("mine.c")]}).resolved_yaml()
    assert str(tmp_path / "mine.c") in text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({**CONTENT, "probes": ["none", "kprobes"]}, "did you mean 'kprobe'?"),
        ({**CONTENT, "probes": [object()]}, "expected text, numbers, lists and mappings"),
        ({**CONTENT, "description": "x" * (1 << 17)}, "larger than 64 KiB"),
        ({"name": "own"}, "4 problems"),
        ([], "expected keys with values"),
    ],
)
def test_a_wrong_experiment_is_an_error_with_its_place(content: Any, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        orchestrator.Lab().build(content)
    assert what in str(caught.value)
    assert str(caught.value).startswith("the experiment")


def test_runs_are_found_and_compared_and_become_tables(lab: Path, tmp_path: Path) -> None:
    first = store_run(lab, tmp_path / "a", cell("none"), cell("kprobe", samples=[1036.0], value=1036.0))
    other = store_run(lab, tmp_path / "b", cell("none"), failed("kprobe", "it hangs"))
    own_lab = orchestrator.Lab()
    assert {entry.id for entry in own_lab.runs()} == {first, other}
    run = own_lab.find(first)
    frame = run.to_frame().set_index("probe")
    assert list(frame["value"]) == [409.0, 1036.0]
    assert frame.loc["kprobe", "run"] == first
    compared = own_lab.compare(run, other)
    assert compared.before.record.run == first
    row = compared.to_frame().set_index("cell").loc[run.record.cells[1].id]
    assert (row["change"], row["before"], row["exceeded"]) == ("failed", 1036.0, "it failed")
    with pytest.raises(UsageError, match="found 3 runs"):
        own_lab.compare(first, other, first)


def test_a_dry_run_has_the_cells_and_starts_nothing(lab: Path) -> None:
    own_lab = orchestrator.Lab()
    planned = own_lab.dry_run(own_lab.build(CONTENT), only=["probe=kprobe"])
    (boot,) = planned.boots
    assert boot.command[0].startswith("qemu-system-")
    assert "(kernel of debian-686, not built)" in boot.command
    assert len(boot.cells) == 2  # the baseline, too
    assert all("gtodbench" in planned_cell.cell.benchmark for planned_cell in boot.cells)
    assert not lab.exists()
    with pytest.raises(ConfigError, match=r"matches none|no cell"):
        own_lab.dry_run(own_lab.build(CONTENT), only=["probe=kprobes"])


def test_a_run_gets_and_loses_a_name(lab: Path, tmp_path: Path) -> None:
    first = store_run(lab, tmp_path / "a", cell("none"))
    own_lab = orchestrator.Lab()
    assert own_lab.set_baseline("mine", first) is None
    assert own_lab.set_baseline("mine") == first
    assert own_lab.find("mine").record.run == first
    own_lab.remove_baseline("mine")
    with pytest.raises(UsageError, match="mine"):
        own_lab.remove_baseline("mine")


def test_the_histories_of_a_name_are_those_of_its_cells(lab: Path, tmp_path: Path) -> None:
    own_lab = orchestrator.Lab()
    with pytest.raises(UsageError, match="no run"):
        own_lab.histories()
    for folder in ("a", "b"):
        value = 409.0 if folder == "a" else 500.0
        store_run(lab, tmp_path / folder, cell("none", samples=[value], value=value))
    (steps,) = own_lab.histories()
    assert [step.change for step in steps.ordered] == [91.0]
    assert own_lab.histories(str(steps.history.metric)) == [steps]


@pytest.mark.parametrize(
    ("at", "what"), [("vfs_read:0", "expected SYMBOL or SYMBOL:N"), ("", "expected SYMBOL"), ("vfs_read", "no run")]
)
def test_a_wrong_place_or_cell_is_refused_before_a_guest_starts(lab: Path, at: str, what: str) -> None:
    with pytest.raises((UsageError, HostError), match=f"{what}|gdb is not installed"):
        orchestrator.Lab().debug("latest:kprobe", at=at)
    assert not lab.exists()


def test_a_time_line_needs_a_stored_cell(lab: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        orchestrator.Lab().timeline("latest:kprobe")


def test_only_a_tree_is_built(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a kernel's tree"):
        orchestrator.Lab(offline=True).build_tree(tmp_path)


def test_without_pandas_a_run_says_what_to_install(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = orchestrator.Lab().find(store_run(lab, tmp_path / "a", cell("none")))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HostError, match="pandas is not installed"):
        run.to_frame()


def test_a_wrong_guest_is_refused_before_it_is_made(lab: Path) -> None:
    arguments: Any = {"kernle": "debian-686"}
    with (
        pytest.raises(UsageError, match="unknown argument 'kernle'"),
        orchestrator.Lab(offline=True).guest(**arguments),
    ):
        pass
