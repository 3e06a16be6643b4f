# SPDX-License-Identifier: GPL-2.0-only
"""Does no invented input lead a reader to anything but a result or a sentence?"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fuzz.fuzzing import fuzz
from fuzz.registry import TARGETS
from fuzz.target import Target

pytestmark = [
    pytest.mark.nightly("100,000 inputs for each of 48 readers take half an hour"),
    pytest.mark.skipif(sys.version_info >= (3, 14), reason="atheris 3.0 has wheels for Python up to 3.13"),
]


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_nothing_is_found(target: Target, tmp_path: Path) -> None:
    assert find_spec("atheris") is not None, "there is no atheris: pip install -c constraints.txt -e '.[fuzz]'"
    fuzzed = fuzz(target, target.nightly, tmp_path)
    assert not fuzzed.problem, f"{fuzzed.problem}\nThe input is in {tmp_path}."
    assert fuzzed.inputs >= target.nightly
