# SPDX-License-Identifier: GPL-2.0-only
"""Each proof is tried every day on one kernel, CPU and channel; on the others every night."""

from __future__ import annotations

import pytest

ELSEWHERE = pytest.mark.nightly("the same on another kernel, CPU or channel")
"""For the parameters of a test that it does not need every day."""
