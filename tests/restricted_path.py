# SPDX-License-Identifier: GPL-2.0-only
"""The PATH of all tests: one folder with the programs of the package lists, and no others."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from dpkg_database import read_dpkg_database
from program_folder import PREFIX, link_programs, listed_programs, read_lists


def restrict_path(config: pytest.Config) -> None:
    """Set PATH until pytest ends. On a host without dpkg it stays as it is."""
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist has the PATH of the process that started it
        return
    database = read_dpkg_database()
    if database is None:
        return
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    config.add_cleanup(folder.cleanup)
    requirements = [requirement for listed in read_lists().values() for requirement in listed]
    link_programs(listed_programs(database, requirements), Path(folder.name))
    path = pytest.MonkeyPatch()
    config.add_cleanup(path.undo)
    path.setenv("PATH", folder.name)
