# SPDX-License-Identifier: GPL-2.0-only
"""A user's probe, named by its path: a module (its template, C file or .ko), or BPF programs (source or object)."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.catalog.one_liner import is_one_liner
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

SUFFIXES = (".c.j2", ".c", ".ko")
BPF_SOURCE = ".bpf.c"
BPF_SUFFIXES = (BPF_SOURCE, ".o")


def is_path(name: str) -> bool:
    """Whether a probe's name is a path: it has a slash in it, as no kind of the catalogue and some one-liners have."""
    return "/" in name and not is_one_liner(name)


def has_programs(path: Path) -> bool:
    """Whether a user's file has BPF programs, as source or as object."""
    return path.name.endswith(BPF_SUFFIXES)


def find_probe(name: str) -> Path:
    """Return the file at a path. Raises ConfigError for a file that is missing or is no probe."""
    path = user_path(name)
    if not path.name.endswith((*SUFFIXES, *BPF_SUFFIXES)):
        raise ConfigError(
            f"found {name!r}; a module of your own is a template (.c.j2), a C file (.c) or a .ko, "
            "and BPF programs of your own are a C file (.bpf.c) or an object (.o)"
        )
    return _existing(path, name)


def find_module(name: str) -> Path:
    """Return the file at a path. Raises ConfigError for a file that is missing or is no module."""
    path = user_path(name)
    if has_programs(path) or not path.name.endswith(SUFFIXES):
        raise ConfigError(f"found {name!r}; a module of your own is a template (.c.j2), a C file (.c) or a .ko")
    return _existing(path, name)


def _existing(path: Path, name: str) -> Path:
    if not path.is_file():
        raise ConfigError(f"found {name!r}; there is no such file")
    return path


def shown_name(path: Path) -> str:
    """Return the probe's name in results: its file's name, without characters unsafe to print or to filter by."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", path.name).lstrip("._+-") or "module"
