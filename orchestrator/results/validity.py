# SPDX-License-Identifier: GPL-2.0-only
"""Results are made of what guests report, and a guest may report anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from orchestrator.errors import EvidenceError


@contextmanager
def valid_result() -> Iterator[None]:
    """Make a result of what a guest reported; EvidenceError where the type of the result refuses it."""
    try:
        yield
    except ValidationError as error:
        raise EvidenceError("what the guest reported makes no valid result", detail=str(error).splitlines()) from None
