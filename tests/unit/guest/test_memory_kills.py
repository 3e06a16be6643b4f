# SPDX-License-Identifier: GPL-2.0-only
"""Is a want of memory named where it has killed QEMU, and only there?"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from orchestrator.errors import GuestExit
from orchestrator.guest import diagnosis, slots
from orchestrator.guest.diagnosis import explain_kill

GROUPS = {
    "version 2": ("0::/user.slice/lab\n", "user.slice/lab/memory.events", "low 0\nmax 9\noom 2\noom_kill {}\n"),
    "version 1": (
        "9:name=systemd:/\n4:cpu,memory:/lab\n0::/\n",
        "memory/lab/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    ),
}


class Host:
    """A host's files that count kills."""

    def __init__(self, root: Path, groups: str, file: str, text: str) -> None:
        (root / "groups").write_text(groups)
        self._file, self._text = root / file, text
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def has_killed(self, number: int) -> None:
        self._file.write_text(self._text.format(number))


@pytest.fixture(params=[*GROUPS, "no groups"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(slots, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(slots, "_MOUNTED", tmp_path)
    monkeypatch.setattr(diagnosis, "_HOST", tmp_path / "vmstat")
    return Host(tmp_path, *GROUPS.get(request.param, ("0::/\n", "vmstat", "nr_free_pages 9\noom_kill {}\n")))


def hint_of(status: int, before: int | None) -> str:
    ended = GuestExit("QEMU ended", hint="as before")
    ended.status = status
    explain_kill(ended, before)
    return ended.hint


def test_kills_for_want_of_memory_since_the_start_are_named(host: Host) -> None:
    host.has_killed(3)
    assert diagnosis.memory_kills() == 3
    host.has_killed(4)
    assert "want of memory meanwhile" in hint_of(-signal.SIGKILL, 3)
    assert "the system has not done so" in hint_of(-signal.SIGKILL, 4)
    assert hint_of(-signal.SIGSEGV, 3) == hint_of(1, 3) == "as before"


def test_where_nothing_is_counted_nothing_is_claimed(host: Host) -> None:
    assert diagnosis.memory_kills() is None
    assert "may have killed it" in hint_of(-signal.SIGKILL, None)


def test_this_host_counts() -> None:
    counted = diagnosis.memory_kills()
    assert counted is not None
    assert counted >= 0
