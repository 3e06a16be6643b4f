# SPDX-License-Identifier: GPL-2.0-only
"""What is printed of a fleet's workers, and what is found wrong with them?"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")

from orchestrator.cli.fleet import print_status
from orchestrator.fleet import link as asked
from orchestrator.fleet.link import Surveyed
from orchestrator.fleet.state import FleetState
from orchestrator.fleet.target import Target
from orchestrator.fleet.worker import Answer, Versions

HERE = Versions(project="0.1.0", code="0" * 16, python="3.11", qemu="QEMU emulator version 7.2.22 (Debian 1:7.2)")
STATE = FleetState(
    name="nights", address="tls://127.0.0.1:1", key_file="key", keeper=7, started=8, workers=("one", "two")
)
FLEET = Target(STATE.address, "", STATE)


def worker(name: str, versions: Versions | None = HERE, **answer: object) -> Surveyed:
    facts = {"name": name, "versions": versions, "guests": 2, "memory_mib": 4096, "host": "host"}
    answered = Answer.model_validate({**facts, **answer})
    return Surveyed("tls://127.0.0.1:2", name, 1, answered)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Surveyed]:
    surveyeds: list[Surveyed] = []
    monkeypatch.setattr(asked, "survey", lambda fleet: surveyeds)
    monkeypatch.setattr(Versions, "here", classmethod(lambda cls: HERE))
    return surveyeds


def test_a_whole_fleet_is_shown(answers: list[Surveyed], capsys: pytest.CaptureFixture[str]) -> None:
    answers[:] = [worker("one"), worker("two")]
    assert print_status(FLEET, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scheduler tls://127.0.0.1:1 (nights, supervised by process 7)"
    assert lines[2].split() == ["one", "2", "1", "4096", "host", "0.1.0", "3.11", "7.2.22"]


def test_missing_fleet_is_said(answers: list[Surveyed], capsys: pytest.CaptureFixture[str]) -> None:
    answers[:] = [worker("two")]
    assert not print_status(FLEET, as_json=False)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].split() == ["one", "missing"]
    assert "nights.log says why" in shown.err
    assert not print_status(FLEET, as_json=True)
    assert json.loads(capsys.readouterr().out)["missing"] == ["one"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"versions": None, "problem": "qemu-system-x86_64 is not installed"}, "qemu-system-x86_64 is not installed:"),
        (
            {"versions": HERE.model_copy(update={"code": "1" * 16})},
            f"it has this program with content {'1' * 16}, and this machine has {'0' * 16}: runs refuse it;",
        ),
        ({"cache": "/cache, 0.1 GB free: make room"}, "/cache, 0.1 GB free: make room"),
    ],
)
def test_what_a_run_would_refuse_or_lack_is_told(
    answers: list[Surveyed], capsys: pytest.CaptureFixture[str], answer: dict[str, Any], problem: str
) -> None:
    answers[:] = [worker("one"), worker("two", **answer)]
    assert not print_status(FLEET, as_json=False)
    assert problem in capsys.readouterr().out.splitlines()[-1]
    assert not print_status(FLEET, as_json=True)
    good, bad = json.loads(capsys.readouterr().out)["workers"]
    assert (good["problem"], bad["problem"].startswith(problem)) == ("", True)


def test_a_fleet_without_workers_is_told_how_it_gets_one(
    answers: list[Surveyed], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not print_status(Target(STATE.address, ""), as_json=False)
    assert (
        capsys.readouterr().err == "the fleet has no worker; start one: orchestrator fleet worker tls://127.0.0.1:1\n"
    )
