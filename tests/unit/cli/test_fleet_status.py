# SPDX-License-Identifier: GPL-2.0-only
"""What is printed of a fleet's workers, and what is found wrong with them?"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")

from orchestrator.cli.fleet import examine_fleet, print_status
from orchestrator.doctor import Status
from orchestrator.fleet import link as asked
from orchestrator.fleet.link import Surveyed
from orchestrator.fleet.state import FleetState
from orchestrator.fleet.target import Target
from orchestrator.fleet.worker import Answer, Offer, Versions

HERE = Versions(project="0.1.0", code="0" * 16, python="3.11", qemu="QEMU emulator version 7.2.22 (Debian 1:7.2)")
STATE = FleetState(
    name="nights", address="tls://127.0.0.1:1", key_file="key", keeper=7, started=8, workers=("one", "two")
)
FLEET = Target(STATE.address, "", STATE)


def worker(name: str, versions: Versions = HERE, **answer: object) -> Surveyed:
    offer = Offer(name=name, versions=versions, guests=2, memory_mib=4096)
    facts = {"offer": offer, "host": "host", "cache": "/cache", "is_writable": True, "free_mb": 5000, **answer}
    return Surveyed("tls://127.0.0.1:2", name, 1, Answer.model_validate(facts))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Surveyed]:
    found: list[Surveyed] = []
    monkeypatch.setattr(asked, "survey", lambda fleet: found)
    monkeypatch.setattr(Versions, "here", classmethod(lambda cls: HERE))
    return found


def findings(answers: list[Surveyed], workers: Sequence[Surveyed]) -> list[tuple[str, Status, str, str]]:
    answers[:] = workers
    return [(one.name, one.status, one.text, one.remedy) for one in examine_fleet(FLEET)[1:]]


def test_a_whole_fleet_is_shown(answers: list[Surveyed], capsys: pytest.CaptureFixture[str]) -> None:
    answers[:] = [worker("one"), worker("two")]
    assert print_status(FLEET, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scheduler tls://127.0.0.1:1 (nights, kept by process 7)"
    assert lines[2].split() == ["one", "2", "1", "4096", "host", "0.1.0", "3.11", "7.2.22"]


def test_one_that_is_missing_is_told(answers: list[Surveyed], capsys: pytest.CaptureFixture[str]) -> None:
    answers[:] = [worker("two")]
    assert not print_status(FLEET, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["one", "missing"]
    assert not print_status(FLEET, as_json=True)
    assert json.loads(capsys.readouterr().out)["missing"] == ["one"]
    ((name, status, _, remedy),) = [one for one in findings(answers, [worker("two")]) if one[0] == "one"]
    assert (name, status, "nights.log says why" in remedy) == ("one", Status.MISSING, True)


def test_one_that_cannot_say_what_it_is_is_no_whole_fleet(
    answers: list[Surveyed], capsys: pytest.CaptureFixture[str]
) -> None:
    answers[:] = [worker("one"), worker("two", offer=None, problem="qemu-system-x86_64 is not installed")]
    assert not print_status(FLEET, as_json=False)
    assert "qemu-system-x86_64 is not installed" in capsys.readouterr().out.splitlines()[-1]
    assert findings(answers, answers[1:])[0][:3] == ("two", Status.MISSING, "qemu-system-x86_64 is not installed")


def test_what_a_run_refuses_is_missing_and_what_it_does_not_is_not(answers: list[Surveyed]) -> None:
    other = HERE.model_copy(update={"code": "1" * 16})
    found = findings(answers, [worker("one", other), worker("two", is_writable=False)])
    assert [(one[0], one[1]) for one in found] == [("one", Status.MISSING), ("two", Status.MISSING)]
    assert (
        found[0][2] == f"it has this program with content {'1' * 16}, and this machine has {'0' * 16}: a run refuses it"
    )
    assert found[1][2] == "/cache cannot be written to"
    found = findings(answers, [worker("one"), worker("two", free_mb=100)])
    assert [one[1] for one in found] == [Status.OK, Status.WARNING]
    assert found[0][2] == "2 guests, 4096 MiB, QEMU 7.2.22, 5000 MB free in /cache"
    assert found[1][2] == "100 MB free in /cache; better 2000"


def test_a_fleet_without_workers_is_told_how_it_gets_one(answers: list[Surveyed]) -> None:
    assert findings(answers, [])[-1][2:] == ("there is none", "orchestrator fleet worker tls://127.0.0.1:1")
