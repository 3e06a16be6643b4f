# SPDX-License-Identifier: GPL-2.0-only
"""Is the reason told for which a worker on another host cannot be started, whatever it is?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet.local import KeptLog
from orchestrator.fleet.state import WorkerOrder

pytest.importorskip("paramiko", reason="the extra fleet is not installed")

from orchestrator.fleet.hosts import HostWorker


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KeptLog]:
    kept = KeptLog(tmp_path / "x.log")
    yield kept
    kept.close()


@pytest.mark.parametrize(
    ("file", "text"),
    [("config", "Port many\n"), ("known_hosts", "192.0.2.1 ssh-ed25519 AAAA=B\n")],
)
def test_a_line_that_nothing_can_be_made_of_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: KeptLog, file: str, text: str
) -> None:
    """The keeper, and who waits for it, would wait for ever."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / file).write_text(text)
    reasons: list[str] = []
    HostWorker(WorkerOrder("there", ssh="127.0.0.1", lab="lab"), "tls://127.0.0.1:1", "", log, reasons.append).run()
    (reason,) = reasons
    assert reason.startswith("127.0.0.1 cannot be reached: ")
