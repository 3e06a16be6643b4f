# SPDX-License-Identifier: GPL-2.0-only
"""Does a reader's wrong exception, or its endless work, come out of what feeds it?"""

from __future__ import annotations

import itertools
import re

import pytest
from fuzz.target import Feeder, TooSlowError

from orchestrator.errors import ConfigError, LabError, UsageError


def raising(error: Exception) -> Feeder:
    def read(data: bytes) -> None:
        raise error

    return Feeder(read, UsageError)


def test_expected_errors_are_no_finds() -> None:
    Feeder(lambda data: None, LabError).feed(b"any")
    raising(UsageError("no")).feed(b"any")
    raising(ConfigError("no")).feed(b"any")


@pytest.mark.parametrize("error", [LabError("no"), ValueError("no"), RecursionError(), MemoryError()])
def test_any_other_exception_is_a_find(error: Exception) -> None:
    with pytest.raises(type(error)):
        raising(error).feed(b"any")


def endless(data: bytes) -> None:
    for _ in itertools.count():
        pass


def suppressing(data: bytes) -> None:
    while True:
        try:
            endless(data)
        except Exception:
            continue


def quadratic(data: bytes) -> None:
    re.compile(rb"(a+)+b").fullmatch(b"a" * 40)


@pytest.mark.parametrize("read", [endless, suppressing, quadratic])
def test_endless_work_is_a_find(read: object) -> None:
    assert callable(read)
    with pytest.raises(TooSlowError):
        Feeder(read, LabError, seconds=0.05).feed(b"any")
    Feeder(lambda data: None, LabError).feed(b"any")
