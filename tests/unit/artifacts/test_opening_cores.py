# SPDX-License-Identifier: GPL-2.0-only
"""Can the line that opens a vmcore be pasted: the program that is there, with the symbols that are at hand?"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_modules import tiny_kernel

from orchestrator.artifacts import opening_cores
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.opening_cores import opening_command


@pytest.fixture
def core(tmp_path: Path) -> Path:
    (tmp_path / "my core").write_bytes(b"")
    return tmp_path / "my core"


def line(tmp_path: Path, core: Path) -> list[str]:
    context = BuildContext(Cache(tmp_path / "cache"))
    return shlex.split(opening_command(context, tiny_kernel(tmp_path / "kernel"), core))


def test_drgn_is_the_lab_s(tmp_path: Path, core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("drgn")
    monkeypatch.setattr(opening_cores, "has_vmcoreinfo", lambda file: True)
    monkeypatch.setenv("PATH", str(tmp_path))  # an environment's programs are on no PATH
    program, *words = line(tmp_path, core)
    assert words == ["-c", str(core)]  # nothing is fetched for symbols
    assert Path(program).parent == Path(sys.executable).parent
    assert subprocess.run([program, "--version"], capture_output=True, check=True).stdout.startswith(b"drgn ")


def test_symbols_that_are_at_hand_are_given(tmp_path: Path, core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_cores, "has_vmcoreinfo", lambda file: True)
    monkeypatch.setattr(opening_cores, "kernel_debug_info", lambda context, kernel: tmp_path / "vmlinux")
    assert line(tmp_path, core)[1:] == ["-c", str(core), "-s", f"{tmp_path}/vmlinux"]
    monkeypatch.setattr(opening_cores, "has_vmcoreinfo", lambda file: False)
    assert line(tmp_path / "other", core) == ["gdb", f"{tmp_path}/vmlinux", str(core)]


def test_without_drgn_it_is_said_what_installs_it(tmp_path: Path, core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_cores, "has_vmcoreinfo", lambda file: True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert line(tmp_path, core)[:3] == ["drgn", "-c", str(core)]
    assert line(tmp_path / "other", core)[-4:] == ["(which", "pip", "install", "probe-lab[source]", "installs)"][-4:]
