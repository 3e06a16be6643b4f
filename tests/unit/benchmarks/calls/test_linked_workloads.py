# SPDX-License-Identifier: GPL-2.0-only
"""Can a workload be linked with libraries and points in them be named, and is what a guest cannot have refused?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from loaded_tables import only_table

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan

ORDINARY = {
    "name": "linked",
    "image": "debian-amd64",
    "kernels": "[debian-amd64]",
    "machines": "[{cpu: xeon-e5410}]",
    "points": '["libc.so.6:malloc+16", "libmine.so:lab:passed"]',
    "probes": "[none, uprobe-event]",
    "benchmark": "{name: workload, file: calling.c, libraries: [libc.so.6, ./libmine.c]}",
}


def load(folder: Path, **changes: str | None) -> Experiment:
    for name in ("calling.c", "libmine.c"):
        (folder / name).write_text("")
    keys = {key: value for key, value in {**ORDINARY, **changes}.items() if value is not None}
    (folder / "x.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    return load_experiment(folder / "x.yaml", kinds())


def test_a_workload_is_linked_with_libraries(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    assert only_table(experiment, CallsTable).benchmark.libraries == ("libc.so.6", str(tmp_path / "libmine.c"))
    cells = plan(experiment).cells
    assert [cell.id.rpartition("/")[2] for cell in cells] == [
        *["libc.so.6=malloc+0x10"] * 2,
        *["libmine.so=lab=passed"] * 2,
    ]
    assert cells[0].parameters["libraries"] == "libc.so.6, libmine.so"
    (tmp_path / "resolved.yaml").write_text(experiment.resolved_yaml())
    assert load_experiment(tmp_path / "resolved.yaml", kinds()) == experiment
    assert cells[0].parameters["at"] == "libc.so.6:malloc+0x10"


def linked(*libraries: str) -> str:
    return f"{{name: workload, file: calling.c, libraries: [{', '.join(libraries)}]}}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": None}, "found libc.so.6, libmine.so; what loads shared libraries is in an image"),
        ({"benchmark": linked("libc.so.6")}, "found 'libmine.so:lab:passed'; the workload is linked with libc.so.6"),
        ({"benchmark": "{name: workload, file: calling.c}"}, "the workload is linked with no library"),
        ({"benchmark": linked("libc")}, "found 'libc'; expected a library of the image, such as libc.so.6, or a path"),
        ({"benchmark": linked("libmine.c")}, "found 'libmine.c'; expected a library of the image"),
        ({"benchmark": linked("./gone.so")}, "gone.so'; this file does not exist"),
        ({"benchmark": linked("./x.yaml")}, "x.yaml'; expected a C file (.c) or a shared x86 library (.so)"),
        ({"benchmark": linked("libmine.so", "./libmine.c")}, "found another libmine.so"),
        ({"benchmark": linked("7")}, "found 7; expected a library of the image"),
        ({"benchmark": "{name: gtodbench, libraries: [libc.so.6]}"}, "benchmark 'gtodbench' does not have this key"),
        ({"points": '["libc.so.6:"]'}, "expected a kernel function, with or without an offset"),
        ({"points": '["libc:malloc"]'}, "expected a kernel function, with or without an offset"),
    ],
)
def test_what_a_guest_cannot_have_is_refused(tmp_path: Path, changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, **changes)
    assert words in str(refused.value)


def test_a_disk_of_the_user_s_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "own.raw").write_bytes((bytes(0x1FE) + b"\x55\xaa").ljust(1 << 20, b"\0"))  # a partition table
    with pytest.raises(ConfigError, match=r"found libc\.so\.6; a disk of your own is not looked into"):
        load(tmp_path, image="./own.raw")


def test_a_program_is_no_library(tmp_path: Path) -> None:
    shutil.copy("/bin/true", tmp_path / "own")
    with pytest.raises(ConfigError, match=r"own'; expected a library of the image"):
        load(tmp_path, benchmark=linked("./own"), points='["program:x"]')
