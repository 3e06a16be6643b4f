# SPDX-License-Identifier: GPL-2.0-only
"""What people have in place of a disk: other programs' disks, packed ones, archives."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read

BEGIN = 33 << 10
"""Bytes of a file that tell what it is: a CD's mark is behind 32 KiB."""


class OtherFile(Fact):
    """A kind of file: the bytes ``mark`` (hexadecimal) are ``at`` bytes behind its beginning."""

    at: int
    mark: str
    what: str
    hint: str


def other_file(begin: bytes) -> OtherFile | None:
    """What a file with this beginning is; None where it may be a disk."""
    return next((one for one in _all() if begin[one.at :].startswith(bytes.fromhex(one.mark))), None)


@lru_cache(maxsize=1)
def _all() -> tuple[OtherFile, ...]:
    entries = read("other_files.yaml")["files"]
    assert isinstance(entries, list)
    return tuple(OtherFile.model_validate(entry) for entry in entries)
