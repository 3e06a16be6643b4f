# SPDX-License-Identifier: GPL-2.0-only
"""Commits whose costs are measured: their messages' heads, and their place in a series."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Commit:
    """A commit with the first line of its message."""

    hash: str
    subject: str
    author: str
    date: str

    @property
    def short(self) -> str:
        return self.hash[:12]


@dataclass(frozen=True)
class SeriesCommit:
    """A commit with its author's address; ``reverts`` is the hash that its message names."""

    commit: Commit
    email: str = ""
    is_merge: bool = False
    reverts: str = ""

    @property
    def remark(self) -> str:
        """What kind of commit it is; empty for a usual one."""
        if self.is_merge:
            return "merge of all that it brings"
        return f"reverts {self.reverts[:12]}" if self.reverts else ""
