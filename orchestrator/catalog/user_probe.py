# SPDX-License-Identifier: GPL-2.0-only
"""A user's probe, named by its path: a module (its template, C file or .ko), or BPF programs (source or object)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from orchestrator.catalog.one_liner import is_one_liner
from orchestrator.catalog.similar_file import similar_file
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

SUFFIXES = (".c.j2", ".c", ".ko")
BPF_SOURCE = ".bpf.c"
BPF_SUFFIXES = (BPF_SOURCE, ".o")

_FORMS = "a module of your own is a template (.c.j2), a C file (.c) or a .ko"
_UNPACK = {".zst": "zstd -dk", ".xz": "unxz -k", ".gz": "gunzip -k"}
_CPLUSPLUS = (".cpp", ".cc", ".cxx", ".C", ".c++")


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
        what = f"found {name!r}; {_FORMS}, and BPF programs of your own are a C file (.bpf.c) or an object (.o)"
        raise ConfigError(what, hint=_way(path))
    return _existing(path, name)


def find_module(name: str) -> Path:
    """Return the file at a path. Raises ConfigError for a file that is missing or is no module."""
    path = user_path(name)
    if has_programs(path) or not path.name.endswith(SUFFIXES):
        raise ConfigError(f"found {name!r}; {_FORMS}", hint=_way(path))
    return _existing(path, name)


def _existing(path: Path, name: str) -> Path:
    if not path.is_file():
        what = "that is a folder" if path.is_dir() else "there is no such file"
        raise ConfigError(f"found {name!r}; {what}", hint=similar_file(path, (*SUFFIXES, *BPF_SUFFIXES)))
    return path


def unpacking(path: Path) -> str:
    """The command that unpacks a packed file, by its suffix."""
    return f"{_UNPACK[path.suffix]} {shlex.quote(str(path))}"


def _way(path: Path) -> str:
    """A hint at what can be done with a file that is none of ours; empty where nothing is known of it."""
    if path.suffix in _UNPACK and path.stem.endswith(".ko"):
        return f"unpack it first: {unpacking(path)}"
    if path.suffix in _CPLUSPLUS:
        if path.stem.endswith(".bpf"):
            return "BPF programs of your own are C, not C++"
        return "the kernel's build system compiles C, not C++"
    if path.suffix == ".o" and not path.stem.endswith(".bpf"):
        return "an object is no module yet: give its source, a .c, and the lab builds it"
    if has_programs(path):
        return "BPF programs are no modules: an experiment that measures calls has them among its probes"
    if path.suffix == ".bt":
        return "write a bpftrace program as a one-liner among the probes: 'bpftrace: kprobe:vfs_read { @ = count(); }'"
    if path.is_dir():
        return "exec and shell build a folder (--module FOLDER); elsewhere name the .ko that make builds in it"
    return ""


def shown_name(path: Path) -> str:
    """Return the probe's name in results: its file's name, without characters unsafe to print or to filter by."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", path.name).lstrip("._+-") or "module"
