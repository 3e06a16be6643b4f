# SPDX-License-Identifier: GPL-2.0-only
"""What holds for all tests: they find the listed programs alone, from before their modules are imported."""

from __future__ import annotations

import pytest
from restricted_path import restrict_path


def pytest_configure(config: pytest.Config) -> None:
    restrict_path(config)
