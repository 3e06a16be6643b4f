# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest's taint read once for all who ask, and is what no kernel says an error?"""

from __future__ import annotations

from typing import cast

import pytest

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.diagnosis import taint_mask
from orchestrator.guest.guest import Guest
from orchestrator.run.guests import permitted_taint


class Answering:
    """A guest whose file of the taint has this content."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def get(self, source: str, **_: object) -> bytes:
        return self._content


def guest(content: bytes) -> Guest:
    return cast(Guest, Answering(content))


def test_a_mask_is_a_number_in_a_line() -> None:
    assert taint_mask(guest(b"4096\n")) == 4096
    assert permitted_taint(guest(b"4096\n")) == 4096
    with pytest.raises(EvidenceError, match="taint"):
        permitted_taint(guest(b"4224\n"))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"-1\n", b"nothing\n", b"\xff\xfe", "²\n".encode(), b"x" * 100_000, b"9" * 5000]
)
def test_anything_else_is_an_error_of_the_guest(content: bytes) -> None:
    for read in (taint_mask, permitted_taint):
        with pytest.raises(GuestError, match="has no number for its taint") as refused:
            read(guest(content))
        assert len(refused.value.what) < 200
