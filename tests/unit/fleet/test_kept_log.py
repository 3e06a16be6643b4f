# SPDX-License-Identifier: GPL-2.0-only
"""Is a fleet's log bounded and harmless, and is what is quoted of it what went wrong?"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet.local import LARGEST, KeptLog, told


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KeptLog]:
    kept = KeptLog(tmp_path / "fleets" / "x.log")
    yield kept
    kept.close()


def test_it_is_its_owner_s_only(log: KeptLog) -> None:
    assert stat.S_IMODE(log.file.stat().st_mode) == 0o600


def test_it_does_not_grow_beyond_its_limit_and_keeps_its_end(log: KeptLog) -> None:
    for number in range(3 * LARGEST // 500):
        log.line("host", f"{number} " + "x" * 500)
        assert log.file.stat().st_size <= LARGEST + 2000
    lines = log.file.read_text().splitlines()
    assert lines[-1].startswith(f"host: {3 * LARGEST // 500 - 1} ")
    assert all(line == "..." or line.startswith("host: ") for line in lines)


def test_what_another_process_appends_comes_behind_what_was_kept(log: KeptLog) -> None:
    os.write(log.descriptor, b"y" * LARGEST + b"\nlast\n")
    child = "import sys; sys.stdin.read(); print('appended')"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=log.descriptor) as process:
        log.shorten()
        process.communicate(b"")
    assert log.file.read_text() == "...\nlast\nappended\n"


def test_a_host_s_line_moves_no_cursor_and_has_an_end(log: KeptLog) -> None:
    log.line("host", "\x1b[2Ja\rb" + "z" * 10_000)
    (line,) = log.file.read_text().splitlines()
    assert line.isprintable()
    assert len(line) < 1100


def test_errors_are_quoted_without_their_tracebacks(log: KeptLog) -> None:
    os.write(
        log.descriptor,
        b"2026 - distributed.worker - INFO - Registered\n"
        b"Traceback (most recent call last):\n"
        b'  File "x.py", line 1, in f\n'
        b"ValueError: name taken, a\n"
        b"2026 - distributed.nanny - INFO - closed\n",
    )
    log.line("there", "sh: lab: not found")
    assert told(log.file) == ["ValueError: name taken, a"]
    assert told(log.file, "there") == ["there: sh: lab: not found"]
    assert told(log.file.with_name("none")) == []


def test_a_process_s_output_goes_to_it_and_comes_back(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom orchestrator.fleet.local import KeptLog, output_into\n"
        "with output_into(KeptLog(Path(sys.argv[1]))) as stream:\n"
        "    os.system('echo of a child; echo of its errors >&2')\n"
        "    print('for the user', file=stream)\n"
        "os.write(2, b'later\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.log"], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", "for the user\nlater\n")
    assert (tmp_path / "a.log").read_text() == "of a child\nof its errors\n"
