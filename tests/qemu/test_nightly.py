# SPDX-License-Identifier: GPL-2.0-only
"""Is a night gone on with, compared with the last good one, and told to everybody, whatever is in its way?"""

from __future__ import annotations

import email
import email.policy
import json
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from junitparser import TestSuite

from orchestrator.paths import data_dir
from orchestrator.results.store import Store

KERNEL = "lab-i386-up"

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

EXPERIMENT = f"""\
name: own
kernels: [{KERNEL}]
machines: [{{cpu: pentium4}}]
probes: [none, ./own.c.j2]
benchmark: {{name: gtodbench, calls: 1000, repeats: 4}}
"""
NOTHING = ""
TEN_NOPS = '\tasm volatile("nop; nop; nop; nop; nop; nop; nop; nop; nop; nop");\n'


class Hook:
    """A real server on loopback that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    with hook.server:
        thread = threading.Thread(target=hook.server.serve_forever)
        thread.start()
        yield hook
        hook.server.shutdown()
        thread.join()


def write_handler(folder: Path, body: str) -> None:
    (folder / "work.h").write_text(f"static inline void work(void)\n{{\n{body}}}\n")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The lab's own kprobe with a handler that others may make more expensive."""
    handler = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"
    source = (data_dir("kmods") / "templates" / "kprobe.c.j2").read_text()
    assert handler in source
    (tmp_path / "own.c.j2").write_text('#include "work.h"\n' + source.replace(handler, f"{handler}\twork();\n"))
    write_handler(tmp_path, NOTHING)
    config = tmp_path / "own.yaml"
    config.write_text(EXPERIMENT)
    return config


def good_run(lab: Path) -> str:
    with Store.open(lab) as store:
        return store.baselines()["good-own"].run


def test_nights(config: Path, tmp_path: Path, hook: Hook) -> None:
    lab = tmp_path / "lab"
    command = CommandLine(lab, {"ORCHESTRATOR_WEBHOOK": hook.url})
    night = ("nightly", config, "--mail", tmp_path / "mail", "--junit", tmp_path / "junit.xml")

    # The first is killed, and gone on with by the next.
    process = command.start(*night, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("[1/2]"):
                break
        process.send_signal(signal.SIGKILL)
    assert command.qemus_after() == []
    first = command.run(*night)
    assert first.returncode == 0, first.stderr
    assert "resuming interrupted run" in first.stderr or "is complete, but not reported yet" in first.stderr
    assert first.stdout.splitlines()[:2] == [
        "own: good, cells: 2 ok",
        "There is no earlier good run to compare with.",
    ]
    with Store.open(lab) as store:
        (entry,) = store.runs()
    assert good_run(lab) == entry.id
    assert [told["night"] for told in hook.told] == ["good"]

    # The second finds what regressed, and tells everybody.
    write_handler(config.parent, TEN_NOPS)
    second = command.run(*night)
    assert second.returncode == 1, second.stderr
    assert "budget exceeded: " in second.stdout
    assert "+10 instructions" in second.stdout
    message = email.message_from_string((tmp_path / "mail").read_text(), policy=email.policy.default)
    assert message["Subject"].startswith("[own] bad: 1 regressed, 1 unchanged; ")
    assert message["Subject"].endswith(", most in kprobe_func [own_own] +10")
    assert f"Experiment:\n  own: {config}\n" in message.get_content()
    suite = TestSuite.fromstring((tmp_path / "junit.xml").read_text())
    assert (suite.tests, suite.failures) == (2, 1)
    assert (hook.told[-1]["night"], hook.told[-1]["counts"]) == ("bad", {"regressed": 1, "unchanged": 1})
    assert good_run(lab) == entry.id

    # What it says to do can be done: measure that cell again, and accept it.
    said = {line.partition(": ")[0]: line.partition(": ")[2] for line in second.stdout.splitlines()[::-1]}
    again = command.run(*shlex.split(said["reproduce"])[1:])
    assert again.returncode == 0, again.stderr
    accepted = command.run(*shlex.split(said["accept"])[1:])
    assert accepted.returncode == 0, accepted.stderr


@pytest.mark.nightly("two more nights: five seconds")
def test_what_was_measured_and_not_told_is_told(config: Path, tmp_path: Path, hook: Hook) -> None:
    lab = tmp_path / "lab"
    command = CommandLine(lab)
    # A server that does not answer does not fail the night.
    hook.server.server_close()
    measured = command.run("nightly", config, "--webhook", hook.url)
    assert measured.returncode == 0, measured.stderr
    assert "posting to the webhook at 127.0.0.1 failed" in measured.stderr
    with Store.open(lab) as store:
        (entry,) = store.runs()
        store.remove_baseline("good-own")
    (lab / "nights" / "own").write_text(entry.started)
    told = command.run("nightly", config)
    assert told.returncode == 0, told.stderr
    assert "is complete, but not reported yet" in told.stderr
    assert good_run(lab) == entry.id
    with Store.open(lab) as store:
        assert len(store.runs()) == 1


def test_a_night_that_cannot_be_measured_is_told(config: Path, tmp_path: Path, hook: Hook) -> None:
    command = CommandLine(tmp_path / "lab", {"ORCHESTRATOR_CACHE": str(tmp_path / "an empty cache")})
    reports = ("--mail", tmp_path / "mail", "--junit", tmp_path / "junit.xml", "--webhook", hook.url)
    finished = command.run("nightly", config, *reports, "--offline")
    assert finished.returncode == 3, finished.stderr
    assert [told["night"] for told in hook.told] == ["not measured"]
    assert "Subject: [own] not measured\n" in (tmp_path / "mail").read_text()
    assert TestSuite.fromstring((tmp_path / "junit.xml").read_text()).errors == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--webhook", "ftp://example.org"), "--webhook"),
        (("--mail", "/nowhere/mail"), "/nowhere"),
        (("--junit", "."), "this is a folder"),
    ],
)
def test_errors_are_reported_before_anything_is_measured(
    config: Path, tmp_path: Path, wrong: tuple[str, str], said: str
) -> None:
    finished = CommandLine(tmp_path / "lab").refused("nightly", config, *wrong)
    assert (finished.returncode, said in finished.stderr) == (2, True), finished.stderr
    assert not (tmp_path / "lab" / "runs").exists()
