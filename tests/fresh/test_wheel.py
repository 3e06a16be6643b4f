# SPDX-License-Identifier: GPL-2.0-only
"""Does the first command work on a machine that has only the wheel, and the rest that ``orchestrator doctor`` names?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from first_table import check_printed, check_record
from fresh_machine import CHECKOUT, EXPIRED, fresh_machine, host_network, package_pool
from readme import promised_table

from orchestrator.errors import HostError
from orchestrator.results.contract import RunRecord

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.nightly("the wheel on a fresh machine: two minutes"),
]

_LIMIT = 1800.0
_PROGRAM = "/root/.local/bin/orchestrator"
_ALL = "All missing programs and files, as root: "


def _built(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, CHECKOUT], check=True, timeout=_LIMIT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_first_command_without_a_checkout(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Installed by pipx, in its own environment; ``doctor`` leads to the system packages in one command.

    The wheel is the file that ``LAB_WHEEL`` names, for which the test is never skipped, else one of the checkout.
    """
    given = os.environ.get("LAB_WHEEL")
    if not given and not pytestconfig.getoption("--qemu"):
        pytest.skip("boots a guest in QEMU; pytest --qemu runs it")
    try:
        network = host_network("bookworm", takes_expired=pytestconfig.getoption(EXPIRED))
    except HostError as lacking:
        if given:
            raise
        pytest.skip(f"no fresh machine: {lacking}")
    wheel = Path(given) if given else _built(tmp_path)
    with fresh_machine(network, pool=package_pool("bookworm")) as root:
        shutil.copy(wheel, root.outside("/root"))
        for line in ("apt-get -q update", "apt-get -q install -y --no-install-recommends pipx"):
            root.succeed(line.split())
        root.succeed(["pipx", "install", f"/root/{wheel.name}"])
        told = root.run([_PROGRAM, "doctor"])
        assert told.status == 3
        assert told.stdout.splitlines()[-1].startswith(_ALL)
        root.succeed(["sh", "-c", told.stdout.splitlines()[-1].removeprefix(_ALL)])
        root.succeed([_PROGRAM, "doctor"])
        table = check_printed(root.succeed([_PROGRAM, "run", "configs/quickstart.yaml"]).stdout)
        promised = promised_table((CHECKOUT / "README.md").read_text())
        assert table.kernel != promised.kernel or table.rows == promised.rows
        reported = root.succeed([_PROGRAM, "report", "latest", "--format", "json"]).stdout
        check_record(RunRecord.model_validate_json(reported, strict=False), table)
