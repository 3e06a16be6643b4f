# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's own modules loaded for an experiment, and can their functions be probed like the kernel's?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.results.contract import RunRecord

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(not Path("/usr/sbin/depmod").exists(), reason="needs what images/module-packages.txt lists"),
]

WORKLOAD = Path(__file__).with_name("workloads") / "refused.c"
PROBES = ["none", "kprobe", "djprobe", "kretprobe-event"]
EXPERIMENT = f"""\
name: in-a-module
kernels: [debian-686, lab-i386-up]
machines: [{{cpu: pentium4}}]
kernel_modules: [loop, vfat]
points: [loop_control_ioctl]
probes: [{", ".join(PROBES)}]
handlers: [record]
benchmark: {{name: workload, file: {WORKLOAD}, calls: 100, repeats: 2}}
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "lab")


def test_a_module_s_function_is_probed(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    done = command.run("run", file)
    assert done.returncode == 0, done.stderr
    answer = command.run("report", "latest", "--format", "json")
    cells = RunRecord.model_validate_json(answer.stdout, strict=False).cells
    assert {(cell.kernel, cell.status, cell.reason) for cell in cells} == {
        ("debian-686", "ok", None),
        ("lab-i386-up", "unsupported", "it has no modules: everything is built in"),
    }
    measured = [cell for cell in cells if cell.status == "ok"]
    assert [cell.probe for cell in measured] == PROBES
    for cell in measured:
        assert cell.parameters["kernel_modules"] == "loop, vfat"
        assert cell.evidence is not None
        if cell.probe != "none":
            # An i386's jump, call or int3 costs what it costs in the kernel itself.
            assert cell.evidence.hits == cell.evidence.recorded == cell.evidence.calls
            assert cell.overhead is not None
            assert 40 < cell.overhead < 2000
        assert cell.text is not None
        assert {"loop", "vfat", "fat"} <= set(cell.text.modules)
    (run,) = (command.lab / "runs").glob("*-in-a-module-*")
    (boot,) = json.loads((run / "provenance.json").read_text())["boots"]
    assert boot["kernel_modules"]["name"] == "loop, fat, vfat"
    digests = boot["kernel_modules"]["file_sha256"]
    assert all(len(bytes.fromhex(digest)) == hashlib.sha256().digest_size for digest in digests.values())


def test_misspelt_module_or_point_is_an_error_at_its_place(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for right, wrong, sentence in (
        (
            "[loop, vfat]",
            "[loop, vfatt]",
            ":4: kernel_modules: found 'vfatt'; debian-686: it has no module vfatt of its",
        ),
        (
            "[loop_control_ioctl]",
            "[loop_contrl_ioctl]",
            ":5: points.0: found 'loop_contrl_ioctl'; debian-686: it has no function loop_contrl_ioctl of its own, nor "
            "have the modules that are loaded; did you mean loop_control_ioctl",
        ),
        ("[loop_control_ioctl]", "['loop_control_ioctl+*']", "loop_control_ioctl is in module loop"),
        (
            "[loop_control_ioctl]",
            "[init_module, loop_control_ioctl+0x4]",
            ":5: points.0: found 'init_module'; debian-686: init_module is __init: its memory is freed when the module",
        ),
        ("[loop_control_ioctl]", "[loop_exit]", "loop_exit is __exit: it runs when the module is unloaded"),
    ):
        file.write_text(EXPERIMENT.replace(right, wrong))
        done = command.run("run", file, "--dry-run", "--set", "kernels=[debian-686]")
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
