# SPDX-License-Identifier: GPL-2.0-only
"""Is a worker that is not like its client told apart, and by what?"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator import __version__
from orchestrator.fleet.worker import Answer, Versions

HERE = Versions(project="0.9", code="0123456789abcdef", python="3.11", qemu="7.2.15")
OFFER: dict[str, Any] = {"name": "left", "versions": HERE.model_dump(), "guests": 2, "memory_mib": 4096}


def test_equal_versions_are_no_difference() -> None:
    assert HERE.difference(HERE.model_copy()) is None


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("project", "1.0", "it has this program at version 1.0, and this machine has 0.9"),
        ("code", "f" * 16, "it has this program with content ffffffffffffffff, and this machine has 0123456789abcdef"),
        ("python", "3.13", "it has Python 3.13, and this machine has 3.11"),
        ("qemu", "10.0.2", "it has QEMU 10.0.2, and this machine has 7.2.15"),
    ],
)
def test_each_other_version_is_told(field: str, value: str, told: str) -> None:
    assert HERE.difference(HERE.model_copy(update={field: value})) == told


def test_every_version_counts() -> None:
    for field in Versions.model_fields:
        assert HERE.difference(HERE.model_copy(update={field: "another"})) is not None


def test_the_versions_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.fleet.worker.qemu_version", lambda: "7.2.15")  # there may be no QEMU here
    here = Versions.here()
    assert (here.project, here.qemu) == (__version__, "7.2.15")
    assert here.python == ".".join(map(str, sys.version_info[:2]))
    assert here == Versions.here()


def test_an_offer_arrives() -> None:
    offer = Answer.model_validate(OFFER)
    assert Answer.model_validate_json(offer.model_dump_json()) == offer


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": "two words"},
        {"name": "\x1b[2J"},
        {"name": "x" * 101},
        {"guests": -1},
        {"guests": 1025},
        {"memory_mib": -1},
        {"memory_mib": 2**25},
        {"versions": {**OFFER["versions"], "qemu": "x" * 201}},
        {"versions": {**OFFER["versions"], "code": "not a digest"}},
        {"more": 1},
    ],
    ids=str,
)
def test_an_offer_is_bounded(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Answer.model_validate_json(json.dumps({**OFFER, **wrong}))


@given(st.text(st.characters()))
def test_any_other_text_is_no_offer(text: str) -> None:
    with pytest.raises(ValidationError):
        Answer.model_validate_json(text)
