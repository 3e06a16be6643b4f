# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest's memory spelled alike in an experiment, in a mark and on the command line?"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from orchestrator.cli import one_guest
from orchestrator.cli.main import app
from orchestrator.errors import UsageError
from orchestrator.experiment.cell import Machine
from orchestrator.plain_text import guest_mib, size_mib
from orchestrator.pytest_plugin.guest_pool import checked


def on_the_command_line(text: str) -> int:
    """What the machine of ``exec --memory`` has, in MiB."""
    with patch.object(one_guest.Choice, "machine", autospec=True, side_effect=UsageError("chosen")) as chosen:
        CliRunner().invoke(app, ["exec", "--offline", f"--memory={text}", "--", "true"])
    return int(chosen.call_args.args[0].memory)


@pytest.mark.parametrize(("text", "mib"), [("256M", 256), ("1G", 1024), ("4G", 4096), ("64M", 64), ("512", 512)])
def test_all_take_the_same_spellings(text: str, mib: int) -> None:
    assert guest_mib(text) == mib
    assert Machine.model_validate({"cpu": "pentium4", "memory": text}).memory_mib == mib
    assert checked({"memory": text}).memory == mib
    assert on_the_command_line(text) == mib


def test_a_number_of_yaml_or_python_is_in_mib() -> None:
    machine = Machine.model_validate({"cpu": "pentium4", "memory": 512})
    assert (machine.memory, machine.memory_mib) == ("512M", 512)
    assert checked({"memory": 512}).memory == 512


@pytest.mark.parametrize(
    "value", ["63M", "5G", "4097", "4097M", "0x100", "256m", "256 M", "256MB", "", "M", "-256", True, 256.0, None]
)
def test_what_is_no_memory_of_a_guest(value: object) -> None:
    assert guest_mib(value) is None


def test_a_size_has_a_unit_and_no_bounds() -> None:
    assert [size_mib(text) for text in ("8G", "1500M", "1M", "8", "8K", "0G")] == [8192, 1500, 1, None, None, None]
