# SPDX-License-Identifier: GPL-2.0-only
"""Does the installed package have all that the checkout's has, and does it make the same page of a run?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command_line import FinishedRun
from installed_wheel import CHECKOUT, packages

pytestmark = pytest.mark.qemu

COMMAND = "from orchestrator.cli.main import main; main()"


def files(package: Path) -> set[str]:
    """The package's files; ``data`` is from elsewhere in the checkout."""
    paths = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != "data" and "__pycache__" not in path.parts}


def test_the_wheel_has_every_file_of_the_package(installed_python: Path) -> None:
    wanted = files(CHECKOUT / "orchestrator")
    assert {Path(name).suffix for name in wanted} >= {".py", ".yaml", ".j2", ".css", ".js"}
    assert files(packages(installed_python) / "orchestrator") == wanted


def test_the_installed_package_makes_the_same_page(
    installed_python: Path, undisturbed: FinishedRun, tmp_path: Path
) -> None:
    expected = undisturbed.command.run("report", undisturbed.directory, "--format", "html")
    assert expected.returncode == 0, expected.stderr
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    argv = [str(installed_python), "-c", COMMAND, "report", str(undisturbed.directory), "--format", "html"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected.stdout
    assert 'id="cell-1"' in done.stdout
