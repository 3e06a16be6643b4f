# SPDX-License-Identifier: GPL-2.0-only
"""Does a command load what it needs, and nothing else? What it loads takes half of the time to its first line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.paths import data_dir

_PROGRAM = """
import sys
from orchestrator.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""

_OF_OTHER_COMMANDS = [
    "cryptography",
    "distributed",
    "junitparser",
    "markdown_it",
    "matplotlib",
    "numpy",
    "orchestrator.benchmarks.attaching",
    "orchestrator.benchmarks.markers",
    "orchestrator.benchmarks.scaling",
    "orchestrator.benchmarks.system",
    "orchestrator.comparison",
    "orchestrator.cost",
    "orchestrator.fleet",
    "orchestrator.guest.kernel_tests",
    "orchestrator.ktap",
    "orchestrator.model",
    "orchestrator.pages",
    "orchestrator.probes.bpf_attachment",
    "orchestrator.probes.event_attachment",
    "orchestrator.probes.graph_attachment",
    "orchestrator.probes.one_liner_attachment",
    "orchestrator.probes.user_bpf_attachment",
    "orchestrator.report.chart",
    "orchestrator.report.claims",
    "orchestrator.report.html",
    "orchestrator.report.markdown",
    "orchestrator.report.summary",
    "orchestrator.report.text",
    "orchestrator.results.cost_history",
    "orchestrator.results.modelled",
    "orchestrator.results.recorded_provenance",
    "paramiko",
    "pygments",
    "rich",
    "scipy",
    "zstandard",
]
"""What neither help nor a run needs up to its first cell."""

_OF_A_RUN = ["orchestrator.artifacts", "orchestrator.catalog", "orchestrator.guest", "pydantic", "sqlite3"]


def loaded_by(*arguments: str, folder: Path) -> set[str]:
    """The modules that a command has loaded when it ends."""
    environment = {**os.environ, "ORCHESTRATOR_CACHE": str(folder), "ORCHESTRATOR_LAB": str(folder)}
    argv = [sys.executable, "-c", _PROGRAM, *arguments]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return set(ended.stderr.splitlines()[-1].split())


def of(heavy: list[str], modules: set[str]) -> list[str]:
    """The modules that are one of these packages, or in it."""
    return sorted(module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in heavy))


def test_help_loads_no_code_of_the_lab_but_the_command_line(tmp_path: Path) -> None:
    modules = loaded_by("--help", folder=tmp_path)
    assert "orchestrator.cli.main" in modules
    assert of([*_OF_OTHER_COMMANDS, *_OF_A_RUN], modules) == []


def test_a_run_loads_what_prints_and_compares_when_it_does(tmp_path: Path) -> None:
    config = data_dir("configs") / "quickstart.yaml"
    modules = loaded_by("run", str(config), "--dry-run", folder=tmp_path)
    assert "orchestrator.benchmarks.calls.kind" in modules
    assert of(_OF_OTHER_COMMANDS, modules) == []
