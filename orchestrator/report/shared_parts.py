# SPDX-License-Identifier: GPL-2.0-only
"""The parts that several names have in common, which a table need not repeat."""

from __future__ import annotations

from collections.abc import Sequence


def shared_parts(names: Sequence[Sequence[str]]) -> Sequence[bool]:
    """Of each part whether all names have the same one there; empty where they have not the same number of parts."""
    if len({len(name) for name in names}) != 1:
        return []
    return [len(set(column)) == 1 for column in zip(*names, strict=True)]
