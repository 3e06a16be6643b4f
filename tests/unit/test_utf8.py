# SPDX-License-Identifier: GPL-2.0-only
"""Is everything UTF-8 in a locale of another encoding, but for a terminal?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pseudo_terminals import PSEUDO_TERMINALS

PROGRAM = """\
import sys
from pathlib import Path
from orchestrator.utf8 import use_utf8

use_utf8()
said = "" if sys.stdin.isatty() else sys.stdin.read()
print(Path("réponse").read_text(), said, *sys.argv[1:])
print("▲ é", file=sys.stderr)
"""
OF_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""As an environment of any other encoding, which the host may not have: neither mode nor locale of Python's own."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "réponse").write_text("5 µs → 6 µs", encoding="utf-8")
    for name, value in OF_ASCII.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_files_and_pipes_are_utf_8(place: Path) -> None:
    argv = [sys.executable, "program.py", "naïve"]
    done = subprocess.run(argv, cwd=place, input="ß".encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "5 µs → 6 µs ß naïve\n"
    assert done.stderr.decode() == "▲ é\n"


@PSEUDO_TERMINALS
def test_a_terminal_gets_what_its_encoding_has(place: Path) -> None:
    person, terminal = os.openpty()
    argv = [sys.executable, "program.py"]
    subprocess.run(argv, cwd=place, stdin=terminal, stdout=terminal, stderr=terminal, check=True)
    os.close(terminal)
    assert os.read(person, 1000).splitlines() == [rb"5 \xb5s \u2192 6 \xb5s ", rb"\u25b2 \xe9"]
    os.close(person)
