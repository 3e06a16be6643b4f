# SPDX-License-Identifier: GPL-2.0-only
"""Does systemd take the units that come with the lab?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.paths import data_dir

# Not on the tests' PATH: no listed package brings it.
ANALYZE = Path("/usr/bin/systemd-analyze")
UNITS = sorted((data_dir("configs") / "systemd").iterdir())


def verify(folder: Path) -> subprocess.CompletedProcess[str]:
    units = sorted(map(str, folder.glob("probe-lab-night.*")))
    return subprocess.run(
        [ANALYZE, "verify", "--man=no", *units], capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units for a home folder that has a lab, as a user copies them."""
    home = tmp_path / "home"
    (home / "probe-lab").mkdir(parents=True)
    lab = home / "probe-lab" / "lab"
    lab.write_text("#!/bin/sh\n")
    lab.chmod(0o755)
    folder = tmp_path / "units"
    folder.mkdir()
    for unit in UNITS:
        # %h is another folder for the system's own manager, which verifies.
        (folder / unit.name).write_text(unit.read_text().replace("%h", str(home)))
    return folder


@pytest.mark.skipif(not ANALYZE.exists(), reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(units: Path) -> None:
    finished = verify(units)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


@pytest.mark.skipif(not ANALYZE.exists(), reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("unit", "right", "wrong"),
    [
        ("probe-lab-night.timer", "OnCalendar=*-*-* 02:00:00", "OnCalendar=every night"),
        ("probe-lab-night.service", "/probe-lab/lab nightly", "/probe-lab/labs nightly"),
        ("probe-lab-night.service", "KillMode=mixed", "KillModes=mixed"),
    ],
)
def test_faults_of_units_are_found(units: Path, unit: str, right: str, wrong: str) -> None:
    file = units / unit
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    finished = verify(units)
    assert finished.stderr != ""
