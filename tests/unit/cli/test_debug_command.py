# SPDX-License-Identifier: GPL-2.0-only
"""Does ``debug`` refuse what has no place to stop at, before it starts anything?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from called_commands import refusal
from record_builders import cell, failed
from stored_profiles import store_run

pytestmark = pytest.mark.usefixtures("lab")


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    cells = (cell("none"), cell("kprobe"), cell("djprobe", clock="wall", unit="ns"), failed("jprobe", "it hangs"))
    return store_run(tmp_path / "lab", tmp_path / "run", *cells)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["latest"], "'latest' names 4 cells"),
        (["latest:noop"], "'latest:noop' names 4 cells"),
        (["latest:djprobe"], "is on clock wall, where no place repeats"),
        (["latest:jprobe"], "has no number"),
        (["latest:kprobe", "--at", ":2"], "--at: found ':2'; expected SYMBOL or SYMBOL:N"),
        (["latest:kprobe", "--at", "f:0"], "--at: found 'f:0'; expected SYMBOL or SYMBOL:N"),
        (["latest:kprobe", "--at", "f:x"], "--at: found 'f:x'; expected SYMBOL or SYMBOL:N"),
        (["latest:kprobe", "--at", "f g"], "--at: found 'f g'; expected SYMBOL or SYMBOL:N"),
        (["latest:kprobe", "--at", f"f:{'9' * 5000}"], "; expected SYMBOL or SYMBOL:N"),
        (["latest:kprobe", "--at", "f", "--instruction", "2"], "--at and --instruction exclude each other"),
        (["latest:kprobe", "--instruction", "1000000"], "instructions, not 1000000"),
        (["latest:kprobe"], "the run has no experiment, so its cells cannot be measured again"),
    ],
)
def test_what_has_no_such_place(words: list[str], said: str) -> None:
    assert said in refusal("debug", *words)


def test_without_gdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert refusal("debug", "latest:kprobe", status=3) == "error: gdb is not installed hint: Debian's package: gdb"
