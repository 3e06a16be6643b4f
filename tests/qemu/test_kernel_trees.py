# SPDX-License-Identifier: GPL-2.0-only
"""Is a real tree configured so that all mechanisms can be measured, and is its kernel run where commands are called?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_source import kernel_source
from orchestrator.artifacts.own_kernel_build import TreeBuild, lacking_for_mechanisms
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import DRIVERS, kernel, lacking_options, read_config
from orchestrator.errors import HostError

pytestmark = pytest.mark.qemu


@pytest.mark.nightly("configures a kernel: ten seconds")
@pytest.mark.parametrize(("version", "preemptible"), [("6.1", False), ("6.12", False), ("7.3", True)])
def test_a_tree_gets_a_whole_configuration(
    workshop: BuildContext, tmp_path: Path, version: str, preemptible: bool
) -> None:
    try:
        source = kernel_source(BuildContext(workshop.cache, offline=True), f"linux-source-{version}").path / "linux"
    except HostError as error:
        pytest.skip(str(error))
    # A build folder: the source in the cache is only read.
    (tmp_path / "source").symlink_to(source)
    (tmp_path / "Makefile").write_text(f"export KBUILD_OUTPUT := {tmp_path}\ninclude {source}/Makefile\n")
    TreeBuild(tmp_path / ".config").configure(tmp_path, print)
    config = read_config(tmp_path / ".config")
    assert lacking_options(tmp_path / ".config") == {}
    assert [option for option in DRIVERS if config.get(option) != "y"] == []
    assert lacking_for_mechanisms(source, config) == []
    assert ("CONFIG_PREEMPTION" in config) == preemptible


@pytest.mark.nightly("a run of its own: ten seconds")
@pytest.mark.kernels("lab-x86_64-smp-bpf")
def test_commands_in_a_build_folder_use_its_kernel(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ready_kernel(workshop, kernel("lab-x86_64-smp-bpf"))
    monkeypatch.chdir(built.headers)
    command = CommandLine(tmp_path)
    done = command.run("exec", "--", "uname", "-r")
    assert (done.returncode, done.stdout) == (0, f"{built.release}\n"), done.stderr
    assert done.stderr.startswith(f"kernel: this tree, {built.headers}\n")
    done = command.run("run", "--set", "handlers=[noop]", "--only", "probe=kprobe-ftrace", "--only", "probe=bpf-fentry")
    assert done.returncode == 0, done.stderr
    cells = command.cells()
    assert {"none", "kprobe-ftrace", "bpf-fentry"} <= cells.keys()
    assert all(cell.value is not None and cell.kernel.startswith("own-build-") for cell in cells.values())
