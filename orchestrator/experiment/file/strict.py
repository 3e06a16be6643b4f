# SPDX-License-Identifier: GPL-2.0-only
"""What every part of an experiment file has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of an experiment file: read-only, of exactly these keys and types."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
