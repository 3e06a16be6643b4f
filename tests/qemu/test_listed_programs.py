# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest run with the programs of the package lists alone, as the tests of it do?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dpkg_database import read_dpkg_database
from other_users import TRACED
from program_folder import PREFIX

from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.skipif(read_dpkg_database() is None, reason="this host has no dpkg to ask for programs")


def path_of(process: int) -> str:
    """The PATH that a process was started with."""
    variables = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(variable.partition("=")[::2] for variable in variables)["PATH"]


@TRACED
def test_a_guest_s_qemu_was_started_with_the_listed_programs(shared_guest: Guest) -> None:
    assert shared_guest.pid is not None
    assert path_of(shared_guest.pid) == os.environ["PATH"]
    assert Path(os.environ["PATH"]).name.startswith(PREFIX)
