# SPDX-License-Identifier: GPL-2.0-only
"""Is what is no function refused before a kernel is looked for, with what to name instead?"""

from __future__ import annotations

from pathlib import Path

import pytest
from built_code import build_tree
from typer.testing import CliRunner
from wrong_inputs import make_tree

from orchestrator.cli.main import app


@pytest.mark.parametrize(
    ("function", "sentences"),
    [
        ("", ["found ''; expected a kernel function, such as vfs_read"]),
        ("+0x5", ["found '+0x5'; expected a kernel function"]),
        ("vfs_read+0x5", ["found 'vfs_read+0x5'; expected a kernel function", "hint: name vfs_read"]),
        ("vfs_read+*", ["found 'vfs_read+*'; expected a kernel function"]),
    ],
)
def test_unknown_function_is_refused(function: str, sentences: list[str]) -> None:
    result = CliRunner().invoke(app, ["disasm", "debian-686", function])
    assert (result.exit_code, result.stdout) == (2, "")
    for sentence in sentences:
        assert sentence in result.stderr


def test_an_unknown_kernel() -> None:
    result = CliRunner().invoke(app, ["disasm", "debian-687", "vfs_read"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean 'debian-686'?" in result.stderr


@pytest.mark.parametrize(
    ("function", "reason", "hint"),
    [
        ("first", "it has 2 functions first", "hint: name a function whose name is unique in the kernel"),
        ("number", "number is data, not a function", ""),
        ("nonesuch", "it has no function nonesuch of its own", "hint: a module's function is not in the image"),
    ],
)
def test_the_hint_is_of_the_reason(
    function: str, reason: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    make_tree(tmp_path)
    source = tmp_path / "work.c"
    source.write_text(
        "int _stext(int a) { return a; } int number = 3; int first(int a) { return a * 3; }"
        "int second(int a) { return a * 5; } int _etext(int a) { return a; }"
    )
    build_tree(tmp_path / "linux", source, 8, "-Wl,-e,first")
    listed = tmp_path / "linux" / "System.map"
    listed.write_text(listed.read_text().replace("T second", "t first"))
    result = CliRunner().invoke(app, ["disasm", "--offline", f"{tmp_path}/linux", function])
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert ("hint: " + result.stderr.partition("hint: ")[2]).strip() == (hint or "hint:")
