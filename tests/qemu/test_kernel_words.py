# SPDX-License-Identifier: GPL-2.0-only
"""Kernels with parameters and options of one's own: are they what boots, and is each difference explained?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernel, kernels

pytestmark = pytest.mark.qemu

MITIGATED = """\
name: mitigated
kernels: [debian-amd64]
parameters: [default, mitigations=auto]
machines: [{cpu: xeon-e5410}]
probes: [none, kprobe]
profile: [symbols]
benchmark: {name: syscall, call: getppid, calls: 200, repeats: 2}
"""


def test_what_a_mitigation_costs_is_explained_by_symbol(tmp_path: Path) -> None:
    """The default's figures are those of the kernel without words; isolated page tables come on top."""
    command = CommandLine(tmp_path / "lab")
    file = tmp_path / "mitigated.yaml"
    file.write_text(MITIGATED)
    done = command.run("run", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mitigations=off" in done.stdout  # what the lab passes stands with the table
    words = ("debian-amd64", "debian-amd64+mitigations=auto")
    compared = json.loads(command.run("compare", "latest", "--kernels", *words, "--format", "json").stdout)
    assert len(compared["cells"]) == 2
    for cell in compared["cells"]:
        change = cell["value"]["difference"]
        assert change > 0
        assert sum(one["change"] for one in cell["symbols"]) == change
        # SWITCH_TO_KERNEL_CR3 (arch/x86/entry/calling.h): mov, and, mov and two nops, in place of a jmp over them.
        by_symbol = {one["symbol"]: one["change"] for one in cell["symbols"]}
        assert by_symbol["entry_SYSCALL_64"] == 4
    plain = command.run("run", file, "--set", "parameters=[default]", "--set", "name=plain")
    assert plain.returncode == 0, plain.stderr
    first, second = (
        {
            cell["id"]: cell["value"]
            for cell in json.loads(command.run("report", run, "--format", "json").stdout)["cells"]
        }
        for run in sorted((tmp_path / "lab" / "runs").iterdir(), key=lambda folder: folder.name)
    )
    assert len(second) == 2
    assert second.items() <= first.items()


def test_a_parameter_that_the_kernel_does_not_have_is_refused(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    wrong = command.refused("exec", "--kernel", "debian-amd64+mitgations=auto", "--", "true")
    assert (wrong.returncode, "has no parameter 'mitgations'" in wrong.stderr) == (2, True)


def test_a_parameter_is_on_the_guest_s_command_line(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    done = command.run("exec", "--kernel", "debian-686+nosoftlockup+mitigations=auto", "--", "cat", "/proc/cmdline")
    assert done.stdout.split()[-2:] == ["nosoftlockup", "mitigations=auto"]
    assert "mitigations=off" not in done.stdout


@pytest.mark.nightly("builds a lab kernel and a copy of its tree with an option: some minutes of a processor")
@pytest.mark.parametrize("is_own", [False, True])
def test_an_option_compiles_what_it_concerns(workshop: BuildContext, tmp_path: Path, is_own: bool) -> None:
    plain = ready_kernel(workshop, kernels()["lab-i386-up"])
    tree = tmp_path / "linux"
    tree.symlink_to(plain.headers)
    words = "+CONFIG_PROC_PAGE_MONITOR=y+CONFIG_TMPFS_XATTR=y"
    built = ready_kernel(workshop, kernel(f"{tree if is_own else 'lab-i386-up'}{words}"))
    assert (plain.config.get("CONFIG_TMPFS_XATTR"), built.config.get("CONFIG_TMPFS_XATTR")) == (None, "y")
    assert built.key != plain.key
    before, now = (
        {file.relative_to(folder): file.stat().st_mtime for file in folder.rglob("*.o")}
        for folder in (plain.headers, built.headers)
    )
    compiled = [file for file, time in now.items() if before.get(file) != time]
    assert 3 < len(compiled) < len(now) / 4
    done = CommandLine(tmp_path / "lab").run(
        "exec", "--kernel", f"{tree if is_own else 'lab-i386-up'}{words}", "--", "zcat", "/proc/config.gz"
    )
    assert "CONFIG_TMPFS_XATTR=y" in done.stdout
