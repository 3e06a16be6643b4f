# SPDX-License-Identifier: GPL-2.0-only
"""What makes the pages: another version of it makes all of them anew."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from orchestrator import __version__

_FOLDERS = ("benchmarks", "catalog", "report", "results")
_LIBRARIES = ("matplotlib", "ruptures")
"""Optional: pages say what they lack without them."""


def program_digest() -> str:
    """A digest of this program's version, of what lays out its results, and of the libraries that are there."""
    package = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for folder in _FOLDERS:
        for file in sorted((package / folder).rglob("*")):
            if file.suffix in (".py", ".j2", ".css", ".js", ".yaml"):
                digest.update(f"\0{file.relative_to(package)}\0".encode())
                digest.update(file.read_bytes())
    digest.update(repr([name for name in _LIBRARIES if find_spec(name) is not None]).encode())
    return digest.hexdigest()
