# SPDX-License-Identifier: GPL-2.0-only
"""What does a fleet's supervisor log, bounded and harmless, and why does it say that a worker has not joined?"""

from __future__ import annotations

import asyncio
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.fleet.remote_worker import ssh_command, ssh_failure
from orchestrator.fleet.state import Report, SupervisorConfig, WorkerConfig

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from orchestrator.fleet import supervisor
from orchestrator.fleet.serve import LOG, log_to

THERE = WorkerConfig(name="there", ssh="me@192.0.2.1:2222", lab="a lab/lab", guests=2)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    loggers = [LOG, *(logging.getLogger(name) for name in ("distributed", "tornado", "asyncio"))]
    before = [(one, one.handlers, one.propagate) for one in loggers]
    log_to(tmp_path / "fleets" / "x.log")
    yield tmp_path / "fleets" / "x.log"
    for logger, handlers, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate


def kept(program: str, *, joins: bool = False) -> list[Report]:
    """What a supervisor reports of a worker that is this program of Python's; one that joins is ended then."""
    reports: list[Report] = []

    async def keep() -> None:
        names = {"a": SimpleNamespace(name="here")} if joins else {}
        config = SupervisorConfig(name="x", key="the key", key_file="x.key", host="127.0.0.1", port=0, workers=())
        scheduler = cast(Any, SimpleNamespace(workers=names, address="tls://127.0.0.1:1"))
        worker = supervisor.Worker(WorkerConfig(name="here"), scheduler, config)
        cast(Any, worker)._command = lambda: [sys.executable, "-c", program]
        keeping = asyncio.create_task(worker.keep())
        while not reports:
            await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.wait([keeping])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "_tell", reports.append)
        asyncio.run(keep())
    return reports


def test_a_worker_that_does_not_join_is_told_with_its_last_words(log: Path) -> None:
    (report,) = kept("print('\\x1b[2Ja\\rb' + 'z' * 10_000); print('no QEMU', end=''); raise SystemExit(3)")
    first, *_, last = report.text.splitlines()
    assert (report.kind, first) == ("failed", "worker here: has not joined: it has ended with status 3")
    assert last == "    no QEMU"
    lines = log.read_text().splitlines()
    assert all(line.isprintable() and len(line) < 1100 for line in lines)
    assert any("here: no QEMU" in line for line in lines)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_worker_gets_the_key_and_ends_with_its_input(log: Path) -> None:
    program = "import sys; print(len(sys.stdin.read()))"
    assert kept(program, joins=True) == [Report(kind="joined", text="worker here: joined")]
    assert "here: 7" in log.read_text()


def test_a_worker_that_says_nothing_and_does_not_join_is_ended(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_SILENCE_LIMIT", 0.1)
    (report,) = kept("import sys; sys.stdin.read()")
    assert (report.kind, report.text) == ("failed", "worker here: has not joined: no output for 0.1 s")


def test_joined_worker_may_be_silent(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_SILENCE_LIMIT", 0.05)
    program = "import time; print('begun', flush=True); time.sleep(1); print('ended')"
    assert [report.kind for report in kept(program, joins=True)] == ["joined"]
    assert "here: ended" in log.read_text()


def test_a_program_that_is_not_there_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    (report,) = kept("")
    assert report.text.endswith(": /no/python cannot be started: No such file or directory")


def test_a_log_does_not_grow_beyond_its_limit(log: Path) -> None:
    for number in range(3000):
        LOG.info("%d %s", number, "x" * 500)
    files = sorted(log.parent.iterdir())
    assert [file.name for file in files] == ["x.log", "x.log.1"]
    assert sum(file.stat().st_size for file in files) <= 1 << 20
    assert "2999 xxx" in log.read_text()


def test_no_word_of_a_hosts_file_is_an_option_or_a_command() -> None:
    *options, dashes, host, command = ssh_command(THERE, ["fleet", "worker", "--name", "there"])
    assert (dashes, host, command) == ("--", "192.0.2.1", "'a lab/lab' fleet worker --name there")
    assert options[-4:] == ["-l", "me", "-p", "2222"]
    assert {"-oBatchMode=yes", "-oStrictHostKeyChecking=yes"} <= set(options)


@pytest.mark.parametrize(
    ("status", "said", "why"),
    [
        (127, "sh: 1: lab: not found", "its lab has ended with status 127"),
        (255, "No ED25519 host key is known for x and you have requested strict checking.", "not in known_hosts"),
        (
            255,
            "Host key for x has changed and you have requested strict checking.",
            "another host key than the one in known_hosts",
        ),
        (255, "me@x: Permission denied (publickey).", "accepts none of this user's ssh keys"),
        (255, "ssh: connect to host x port 22: No route to host", "cannot be reached, or the connection has ended"),
    ],
)
def test_why_a_host_s_worker_has_ended_is_told(status: int, said: str, why: str) -> None:
    assert why in ssh_failure(THERE, status, ["something else", said])
