# SPDX-License-Identifier: GPL-2.0-only
"""How hypothesis works here: without time limits, which a busy host would miss, and with nothing left behind.

Also the folders of a lab.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_EXAMPLES = 25
_NIGHTLY_EXAMPLES = 200


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples every day, other ones each time, and many every night."""
    settings.register_profile(
        "lab",
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=_NIGHTLY_EXAMPLES if config.getoption("nightly") else _EXAMPLES,
    )
    settings.load_profile("lab")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the results of commands, which is not there yet; their cache is beside it."""
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "lab"
