# SPDX-License-Identifier: GPL-2.0-only
"""Is a program's output shown as it comes, and a program killed that prints nothing any more?"""

from __future__ import annotations

from pathlib import Path

import pytest
from live import follow

from orchestrator.errors import LabError


def test_output_is_shown_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script"
    script.write_text("echo out; echo '─' >&2; exit 3\n")
    finished = follow(["sh", str(script)])
    assert (finished.status, finished.stdout, finished.stderr) == (3, "out\n", "─\n")
    assert sorted(capsys.readouterr().out.splitlines()) == ["out", "─"]


def test_a_program_may_take_its_time_as_long_as_it_prints_something(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done\n")
    assert follow(["sh", str(script)], silence=30).stdout.split()[-1] == "8"


@pytest.mark.parametrize("last", ["exec sleep 600", "exec sleep 600 >&- 2>&-"])
def test_silent_program_is_killed_and_its_last_lines_are_quoted(tmp_path: Path, last: str) -> None:
    script = tmp_path / "a script"
    script.write_text(f"echo so far\n{last}\n")
    with pytest.raises(LabError, match=r"no output for 3 s") as hung:
        follow(["sh", str(script)], silence=3)
    assert hung.value.detail[0] == f"$ sh '{script}'"
    assert ("so far" in hung.value.detail) == (">&-" not in last)
