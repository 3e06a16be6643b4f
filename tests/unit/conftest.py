# SPDX-License-Identifier: GPL-2.0-only
"""How hypothesis works here: without time limits, which a busy host would miss, and with nothing left behind."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("lab", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lab")
