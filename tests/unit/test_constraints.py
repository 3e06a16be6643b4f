# SPDX-License-Identifier: GPL-2.0-only
"""Does constraints.txt pin every package that pyproject.toml asks for, from the host's own index alone?"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(one for group in PROJECT["optional-dependencies"].values() for one in group),
]
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.]*)")


def pins() -> dict[str, str]:
    """Versions by normalised name. Fails on a line that is neither a comment nor a pin: an address, an option."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    matches = [_PIN.fullmatch(line) for line in lines]
    assert [line for line, pin in zip(lines, matches, strict=True) if pin is None] == []
    return {canonicalize_name(pin[1]): pin[2] for pin in matches if pin is not None}


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_a_dependency_is_pinned_at_a_version_that_will_do(text: str) -> None:
    requirement = Requirement(text)
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_the_lab_itself_is_not_pinned() -> None:
    assert PROJECT["name"] not in pins()
