# SPDX-License-Identifier: GPL-2.0-only
"""Paths on the host: the cache, the results, the package's data files, and paths that users write."""

from __future__ import annotations

import os
import re
from pathlib import Path

from orchestrator.errors import ConfigError, HostError

AWKWARD = "a space, a quote, or one of :#$%;&|<>(){}[]*?\\"
"""Characters that the kernel's build system cannot have in a path."""

_AWKWARD = re.compile(r"""[\s:#$%;&|<>(){}\[\]*?'"`\\]""")


def _folder(own_variable: str, xdg_variable: str, fallback: str) -> Path:
    if folder := os.environ.get(own_variable, ""):
        return Path(folder).absolute()
    # The XDG base directory specification ignores relative paths.
    if (value := os.environ.get(xdg_variable, "")).startswith("/"):
        return Path(value) / "orchestrator"
    try:
        return Path.home() / fallback / "orchestrator"
    except RuntimeError:
        hint = "name folders to work in: ORCHESTRATOR_CACHE=/some/folder ORCHESTRATOR_LAB=/another"
        raise HostError("this user has no home directory, and HOME is not set", hint=hint) from None


def cache_dir() -> Path:
    """The artifact cache: ``$ORCHESTRATOR_CACHE``, else ``orchestrator`` in the user's XDG cache."""
    return _folder("ORCHESTRATOR_CACHE", "XDG_CACHE_HOME", ".cache")


def lab_dir() -> Path:
    """The lab's results (one SQLite file, ``runs/``): ``$ORCHESTRATOR_LAB``, else in the user's XDG data."""
    return _folder("ORCHESTRATOR_LAB", "XDG_DATA_HOME", ".local/share")


def data_dir(name: str) -> Path:
    """A folder of data files: ``kmods``, ``images`` or ``configs``, in a checkout or an installed wheel."""
    package = Path(__file__).resolve().parent
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name


def data_file(name: str) -> Path:
    """A data file by its path in a checkout, such as ``kmods/lib/ktext.c``."""
    folder, _, rest = name.partition("/")
    return data_dir(folder) / rest


def user_path(name: str) -> Path:
    """Make a user's path absolute and expand ``~``. Raises ConfigError for an unknown user."""
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"found {name!r}; this user does not exist") from None


def kbuild_takes(path: Path) -> bool:
    """Whether a path has no ``AWKWARD`` character: make and shells of the kernel's build read it unquoted."""
    return not _AWKWARD.search(str(path))
