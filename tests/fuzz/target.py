# SPDX-License-Identifier: GPL-2.0-only
"""A reader under test, and what it must not do with any input."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Self, cast

from orchestrator.errors import LabError

NIGHTLY_INPUTS = 100_000
"""Inputs for each target in `./lab test --nightly`."""

SECONDS = 5.0
"""Processor time that one input may take; the slowest of the corpus takes 0.1 s. Other processes do not count."""


class TooSlowError(BaseException):
    """A reader has used up an input's processor time. No ``except Exception`` of the reader's stops it."""


@dataclass(frozen=True)
class Target:
    """A function ``read_NAME`` of a module below ``targets``, with dashes for underscores.

    ``longest`` is the size of its inputs in bytes, at most, ``nightly`` how many it gets every night. It may raise
    ``expected``, and nothing else.
    """

    name: str
    module: str
    longest: int = 4096
    nightly: int = NIGHTLY_INPUTS
    expected: type[LabError] = LabError

    @property
    def read(self) -> Callable[[bytes], None]:
        """The function that gives an input to the reader. Loads the reader."""
        module = importlib.import_module(f".targets.{self.module}", __package__)
        return cast(Callable[[bytes], None], getattr(module, f"read_{self.name.replace('-', '_')}"))


class Feeder:
    """Gives inputs to a reader, in the main thread. What is not ``expected`` of it goes through, and TooSlowError."""

    def __init__(self, read: Callable[[bytes], None], expected: type[LabError], seconds: float = SECONDS) -> None:
        self._read = read
        self._expected = expected
        self._seconds = seconds
        signal.signal(signal.SIGPROF, _too_slow)

    @classmethod
    def of(cls, target: Target) -> Self:
        """One for a target, whose reader it loads."""
        return cls(target.read, target.expected)

    def feed(self, data: bytes) -> None:
        """Give one input to the reader."""
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        try:
            self._read(data)
        except self._expected as error:
            str(error)  # it must be possible to print it
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError
