# SPDX-License-Identifier: GPL-2.0-only
"""Does a project of somebody else's get its guests, from a wheel of the package in an environment of its own?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.paths import cache_dir

PROJECT = Path(__file__).parents[1] / "example_project"
LIMIT = 1800.0


@pytest.mark.qemu
@pytest.mark.nightly("installs a wheel and runs a project's tests twice: half a minute")
def test_the_example_projects_tests_pass_with_their_budgets(
    installed_python: Path, workshop: BuildContext, tmp_path: Path
) -> None:
    project = shutil.copytree(PROJECT, tmp_path / "project")
    file = project / "test_call_meter.budgets.yaml"
    # Debian's updates of the kernel have not changed these counts so far.
    release = ready_kernel(workshop, kernels()["debian-686"]).release
    budgets = re.sub(r"debian-686 \S+,", f"debian-686 {release},", file.read_text())
    file.write_text(budgets)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    environment["ORCHESTRATOR_CACHE"] = str(cache_dir())

    def pytest_in_project(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(installed_python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, timeout=LIMIT)

    origin = [str(installed_python), "-c", "import orchestrator; print(orchestrator.__file__)"]
    found = subprocess.run(origin, cwd=project, env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout).is_relative_to(installed_python.parents[1])

    tested = pytest_in_project("--qemu", "-q")
    assert "12 passed" in tested.stdout, tested.stdout + tested.stderr

    # A budget that is one instruction too small. That of another call, which the module is not in: where it has grown.
    parsed = yaml.safe_load(budgets)
    parsed["test_the_call_with_the_meter"] = parsed["test_the_call_alone"]
    small = yaml.safe_load(budgets.replace(": 422\n", ": 421\n"))["test_the_call_alone"]
    file.write_text(yaml.safe_dump({**parsed, "test_the_call_alone": small}))
    grown = pytest_in_project("--qemu", "-q", "-k", "alone or with_the_meter").stdout
    assert "gettimeofday takes 422 instructions, 1 more than its budget, 421, on debian-686 " in grown
    assert "+147: kprobe_ftrace_handler 83 new, ftrace_regs_caller 26 new, ftrace_regs_call 16 new, " in grown
    assert "count [call_meter] 6 new" in grown
    # One of an earlier version, and one of another kernel.
    parsed["test_the_call_with_the_meter"]["gettimeofday"] = {f"debian-686 {release}, pentium4": 568}
    file.write_text(yaml.safe_dump(parsed))
    former = pytest_in_project("--qemu", "-q", "-k", "with_the_meter").stdout
    assert "569 instructions, 1 more than its budget, 568" in former
    assert "most are in kprobe_ftrace_handler 83, ktime_get_real_ts64 81, " in former
    file.write_text(budgets)
    other = pytest_in_project("--qemu", "-q", "-k", "alone", "--qemu-kernel=lab-i386-up")
    assert "has no budget on lab-i386-up " in other.stdout
    assert "there is one on debian-686 " in other.stdout
    assert "1 passed" in pytest_in_project("--qemu", "-q", "-k", "alone", "--qemu-update-budgets").stdout
    assert file.read_text() == budgets
