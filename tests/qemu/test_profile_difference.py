# SPDX-License-Identifier: GPL-2.0-only
"""Do differences between real profiles name the instructions that differ, and only those?"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART, CommandLine

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

REDUCED = ("--set", "benchmark.repeats=2", "--set", "benchmark.calls=100")
DJPROBE = Path(__file__).parents[2] / "kmods" / "templates" / "djprobe.c.j2"


def answers(command: CommandLine, *arguments: str | Path) -> list[dict[str, Any]]:
    ended = command.run("diff", *arguments, "--format", "json")
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def test_a_kprobe_changes_one_instruction_and_adds_the_rest(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    chosen = ("--set", "kernels=[lab-i386-up]", "--only", "kprobe", "--profile", "stacks")
    assert command.run("run", QUICKSTART, *REDUCED, *chosen).returncode == 0
    both = ("latest:none", "latest:kprobe")
    (by_symbol,) = answers(command, *both)
    assert by_symbol["change"] == sum(one["change"] for one in by_symbol["symbols"]) == 889 - 360
    assert by_symbol["other_code"] == ["__ia32_sys_gettimeofday"]
    (function,) = answers(command, *both, "--symbol", "__ia32_sys_gettimeofday")
    changes = {(one["text"], one["change"]) for one in function["instructions"]}
    assert changes == {("push ebp", -1), ("int3", 1)}


@pytest.mark.kernels("lab-i386-up-hook")
def test_a_kernel_with_a_hook_differs_where_the_hook_is(tmp_path: Path) -> None:
    """All other functions are at other addresses there, and so is what they call and refer to."""
    command = CommandLine(tmp_path / "lab")
    kernels = ("lab-i386-up", "lab-i386-up-hook")
    (found,) = answers(command, "--config", QUICKSTART, *REDUCED, "--only", "none", *kernels)
    assert [one["symbol"] for one in found["symbols"]] == ["__do_fast_syscall_32"]
    assert (found["equal"], found["other_code"]) == (16, [])
    cells = [f"latest:{kernel}" for kernel in kernels]
    (function,) = answers(command, *cells, "--symbol", "__do_fast_syscall_32")
    texts = [one["text"] for one in function["instructions"] if one["before"] is None]
    assert [text for text in texts if text.startswith("mov edx, dword ptr [0xc")]
    assert sum(one["change"] for one in function["instructions"]) == found["change"]


def test_two_kernels_are_measured_and_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    template = DJPROBE.read_text()
    include = template.index("#include")
    error = "#ifdef CONFIG_PREEMPTION\n#error not for this kernel\n#endif\n"
    (tmp_path / "picky.c.j2").write_text(
        template[:include] + "#include <linux/kconfig.h>\n" + error + template[include:]
    )
    shutil.copy(QUICKSTART, tmp_path / "two.yaml")
    command = CommandLine(tmp_path / "lab")
    picky = ("--set", f"probes=[none, {tmp_path}/picky.c.j2]")
    arguments = ("--config", tmp_path / "two.yaml", *REDUCED, *picky, "lab-i386-up", "debian-686")
    ended = command.run("diff", *arguments, "--format", "json")
    assert ended.returncode == 1, ended.stderr
    (found,) = json.loads(ended.stdout)
    assert found["before"] == {"cell": "pentium4/lab-i386-up/none/noop", "instructions": 360}
    assert found["after"] == {"cell": "pentium4/debian-686/none/noop", "instructions": 422}
    assert sum(one["change"] for one in found["symbols"]) == found["change"] == 62
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("not compared: ")]
    assert said.startswith("not compared: pentium4/debian-686/picky.c.j2/noop: failed: ")
