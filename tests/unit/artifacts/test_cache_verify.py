# SPDX-License-Identifier: GPL-2.0-only
"""Does ``cache verify`` read everything, list what is damaged, and set it aside?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orchestrator.artifacts import digests
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.cli.main import app


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def verify(*options: str) -> Result:
    return CliRunner().invoke(app, ["cache", "verify", *options])


def workload(root: Path, kind: str = "workloads") -> Artifact:
    def build(folder: Path) -> None:
        (folder / "workload").write_text("x" * 99)

    return Cache(root).obtain(kind, {"n": 1}, "mine.c", build)


def change_unnoticed(file: Path) -> None:
    """Another content of the same size, at the same time, in the same inode: a disk that forgets."""
    facts = file.stat()
    content = file.read_bytes()
    file.write_bytes(content[:-4] + b"????")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def differs(name: str) -> list[str]:
    return [f"{name}:", "has", "different", "content"]


def test_a_sound_cache(root: Path) -> None:
    workload(root)
    done = verify()
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"0 of 1 artifacts damaged in {root}\n", "")


def test_an_empty_cache(root: Path) -> None:
    assert (verify().exit_code, verify().stdout) == (0, f"0 of 0 artifacts damaged in {root}\n")


def test_what_no_use_would_notice_is_set_aside(root: Path) -> None:
    mine, programs = workload(root), workload(root, "programs")
    for artifact in (mine, programs):
        change_unnoticed(artifact.path / "workload")
    assert Cache(root).get("workloads", {"n": 1}) is not None

    dry = verify("--dry-run")
    assert dry.exit_code == 1
    kinds = [line.split()[:2] for line in dry.stdout.splitlines()[1:3]]
    assert kinds == [["damaged", "programs"], ["damaged", "workloads"]]
    assert not (root / "damaged").exists()

    done = verify()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["set", "aside", "programs", "mine.c", programs.key, *differs("workload")]
    assert lines[2].split() == ["set", "aside", "workloads", "mine.c", mine.key, *differs("workload")]
    assert lines[3] == f"2 of 2 artifacts damaged in {root}"
    assert {path.name for path in (root / "damaged").iterdir()} == {
        f"programs-{programs.key}",
        f"workloads-{mine.key}",
    }
    assert (verify().exit_code, verify().stdout) == (0, f"0 of 0 artifacts damaged in {root}\n")


@pytest.mark.parametrize("content", [b"", b"{", b'{"label": "x", "inputs": {"n": 2}}'])
def test_a_damaged_manifest(content: bytes, root: Path) -> None:
    mine = workload(root)
    mine.stamp.write_bytes(content)
    done = verify()
    assert done.exit_code == 1
    assert "manifest.json: " in done.stdout
    assert done.stdout.splitlines()[1].startswith("set aside  workloads")
    assert (root / "damaged" / f"workloads-{mine.key}" / "workload").exists()
    # Nor does what was set aside disturb who lists the artifacts: `cache show`, and the builds of kernels.
    shown = CliRunner().invoke(app, ["cache", "show"])
    assert (shown.exit_code, shown.stdout) == (0, f"0.0 MB in {root}\n")


def test_entry_being_built_is_left_alone(root: Path) -> None:
    (root / "workloads" / ("0" * 24 + ".building")).mkdir(parents=True)
    assert verify().stdout == f"0 of 0 artifacts damaged in {root}\n"


def test_files_that_artifacts_share_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = workload(root)
    Cache(root).obtain("workloads", {"n": 2}, "copy", lambda new: os.link(first.path / "workload", new / "workload"))
    read: list[str] = []
    digest = digests._digest

    def watched(folder: Path, name: str) -> str:
        read.append(name)
        return digest(folder, name)

    monkeypatch.setattr(digests, "_digest", watched)
    assert verify().exit_code == 0
    assert read == ["workload"]
