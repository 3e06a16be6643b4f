# SPDX-License-Identifier: GPL-2.0-only
"""Moments as a site's pages have them: UTC, since they are read anywhere."""

from __future__ import annotations

from datetime import UTC, datetime


def minute(started: str) -> str:
    """``2026-03-01 12:00`` for a moment as the store has it (ISO 8601)."""
    return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M}"


def day(started: str) -> str:
    """``2026-03-01`` for a moment as the store has it."""
    return minute(started)[:10]


def days(first: str, last: str) -> str:
    """``from 2026-03-01 to 2026-03-06``, or ``on 2026-03-01`` where both are of one day."""
    begun, ended = day(first), day(last)
    return f"on {begun}" if begun == ended else f"from {begun} to {ended}"
