# SPDX-License-Identifier: GPL-2.0-only
"""What a guest's unattended work printed, step by step: ``COMMAND NUMBERS: NAME=VALUE NAME=VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError

_STEP = re.compile(r"([a-z]{1,16})((?: [a-z0-9]{1,16}){0,3}): ((?:[a-z0-9_]{1,32}=-?[0-9a-f]{1,20}(?: |$))+)")
_MOST_STEPS = 10_000
_QUOTED = 5
"""Lines before and behind the one that was not expected."""


@dataclass(frozen=True)
class Step:
    """One command of a module, its arguments, and what it came to."""

    command: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]

    def number(self, name: str) -> int:
        """A whole number that the step came to. Raises EvidenceError where it has none of that name."""
        text = self.values.get(name, "")
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise EvidenceError(f"step '{self}' has no number {name}")
        return int(text)

    def positive(self, name: str) -> int:
        """A number above zero, to divide by."""
        number = self.number(name)
        if number <= 0:
            raise EvidenceError(f"step '{self}' has {name}={number}")
        return number

    def hexadecimal(self, name: str) -> str:
        """Bytes or an address, as hexadecimal digits."""
        text = self.values.get(name, "")
        if not re.fullmatch(r"[0-9a-f]{1,20}", text):
            raise EvidenceError(f"step '{self}' has no {name}")
        return text

    def __str__(self) -> str:
        return " ".join((self.command, *self.arguments))


def parse_steps(text: str) -> list[Step]:
    """The steps in their order. Raises EvidenceError for anything else that was printed, quoting it."""
    steps: list[Step] = []
    for line in text.splitlines():
        match = _STEP.fullmatch(line)
        if match is None or len(steps) == _MOST_STEPS:
            near = text.splitlines()[max(0, len(steps) - _QUOTED) : len(steps) + _QUOTED]
            raise EvidenceError(f"the work in the guest did not go as planned: {line[:200]!r}", detail=near)
        values = dict(pair.split("=", 1) for pair in match[3].split())
        steps.append(Step(match[1], tuple(match[2].split()), values))
    return steps


def of_command(steps: Sequence[Step], command: str, count: int) -> list[Step]:
    """The steps of one command, of which there must be so many."""
    found = [step for step in steps if step.command == command]
    if len(found) != count:
        raise EvidenceError(f"{len(found)} steps '{command}' were taken, not {count}")
    return found
