# SPDX-License-Identifier: GPL-2.0-only
"""Is each row of a cost's experiment of one file alone, and does its text, as it is printed, name the same files?"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from called_commands import orchestrator, refusal
from host_toolchain import a_kernel

from orchestrator.cost.cost_experiment import check_names
from orchestrator.cost.line import CostLine
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in a lab of its own."""
    monkeypatch.setattr("orchestrator.cost.request.ready_kernel", lambda _, spec: a_kernel(spec.name))
    for name in ("lab", "cache"):
        monkeypatch.setenv(f"ORCHESTRATOR_{name.upper()}", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths_below_the_current_folder_are_printed_from_there_and_others_stay(here: Path) -> None:
    beside = here.parent / "beside" / here.relative_to("/") / "own.c"
    for file in (here / "own.c", beside):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for named, printed in (("own.c", "./own.c"), (str(beside), str(beside))):
        done = orchestrator("cost", named, "--call", "getppid", "--print")
        assert yaml.safe_load(done.stdout)["probes"] == ["none", printed]


def test_a_call_that_needs_modules_of_the_kernel_has_them_loaded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own.c").touch()
    assert "the call ext4_read needs null_blk and ext4: it has no " in refusal("cost", "own.c", "--call", "ext4_read")
    monkeypatch.setattr("orchestrator.cost.call_finder.missing_module_reason", lambda _, __: None)
    for call, modules in (("ext4_read", ["null_blk", "ext4"]), ("block_read", ["null_blk"]), ("symlink", None)):
        content = yaml.safe_load(orchestrator("cost", "own.c", "--call", call, "--print").stdout)
        assert content.get("kernel_modules") == modules
        assert content["benchmark"]["name"] == "workload"


def test_two_files_of_one_name_are_refused(here: Path) -> None:
    lines = []
    for folder, function in (("a", "vfs_read"), ("b", "vfs_write")):
        (here / folder).mkdir()
        (here / folder / "own.bpf.c").touch()
        row = f"{here / folder / 'own.bpf.c'} program=on_hit"
        lines.append(
            CostLine(
                Subject(row, f"{folder}/own.bpf.c", AttachPlace(function), "on_hit"),
                function,
                {"name": function},
                kernels=("debian-amd64",),
            )
        )
    with pytest.raises(UsageError, match=r"a/own\.bpf\.c and b/own\.bpf\.c have one name"):
        check_names(lines)


def test_a_line_without_its_prefix_is_told_so() -> None:
    line = "kprobe:vfs_read { @ = count(); }"
    hint = "hint: a one-liner of bpftrace is 'bpftrace: PROBE { ACTION }'"
    assert refusal("cost", line) == f"error: found '{line}' {hint}"
    assert hint in refusal("cost", line.replace("@", f"@{'a' * 300}"))
