# SPDX-License-Identifier: GPL-2.0-only
"""The steps that unattended work prints: ``COMMAND NUMBERS: NAME=VALUE NAME=VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from orchestrator.errors import EvidenceError

_STEP = re.compile(r"([a-z]{1,16})((?: [a-z0-9]{1,16}){0,3}): ((?:[a-z0-9_]{1,32}=-?[0-9a-f]{1,20}(?: |$))+)")
_MOST_STEPS = 10_000
_QUOTED_AROUND = 5
"""Lines quoted before and after the unexpected one."""


@dataclass(frozen=True)
class ScriptStep:
    """One command of a module, its arguments, and its results."""

    command: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]

    def number(self, name: str) -> int:
        """A number among the step's results. Raises EvidenceError if there is none of that name."""
        text = self.values.get(name, "")
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise EvidenceError(f"step '{self}' has no number {name}")
        return int(text)

    def positive(self, name: str) -> int:
        number = self.number(name)
        if number <= 0:
            raise EvidenceError(f"step '{self}' has {name}={number}")
        return number

    def hexadecimal(self, name: str) -> str:
        text = self.values.get(name, "")
        if not re.fullmatch(r"[0-9a-f]{1,20}", text):
            raise EvidenceError(f"step '{self}' has no {name}")
        return text

    def __str__(self) -> str:
        return " ".join((self.command, *self.arguments))


def parse_steps(text: str) -> list[ScriptStep]:
    """The steps in order. Raises EvidenceError for any other output, quoting it."""
    steps: list[ScriptStep] = []
    for line in text.splitlines():
        match = _STEP.fullmatch(line)
        if match is None or len(steps) == _MOST_STEPS:
            refuse(text.splitlines(), len(steps), f"{line[:200]!r}")
        values = dict(pair.split("=", 1) for pair in match[3].split())
        steps.append(ScriptStep(match[1], tuple(match[2].split()), values))
    return steps


def refuse(lines: Sequence[str], at: int, why: str) -> NoReturn:
    """Raise EvidenceError with the reason why an output is invalid, and the lines around line ``at``."""
    around = [line[:200] for line in lines[max(0, at - _QUOTED_AROUND) : at + _QUOTED_AROUND]]
    raise EvidenceError(f"the work in the guest printed something unexpected: {why}", detail=around)


def of_command(steps: Sequence[ScriptStep], command: str, count: int) -> list[ScriptStep]:
    """The steps of one command, of which there must be ``count``."""
    script_steps = [step for step in steps if step.command == command]
    if len(script_steps) != count:
        raise EvidenceError(f"{len(script_steps)} steps '{command}' were made, not {count}")
    return script_steps
