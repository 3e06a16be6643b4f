# SPDX-License-Identifier: GPL-2.0-only
"""The lab's scripts for a shell in a guest."""

from __future__ import annotations

import shlex

from orchestrator.paths import data_dir


def lab_script(name: str) -> bytes:
    """One of the lab's scripts for a shell in the guest."""
    return (data_dir("images") / "guest" / name).read_bytes()


def guest_script(name: str, *words: str) -> bytes:
    """A script of the lab's with its arguments set, for a shell that reads it from standard input."""
    return b"set -- " + shlex.join(words).encode("utf-8", "surrogateescape") + b"\n" + lab_script(name)
