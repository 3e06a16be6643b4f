# SPDX-License-Identifier: GPL-2.0-only
"""Which CPU executes a block, by where the kernel has its memory?"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.paths import data_dir

KERNELS, APART, USERS = 0xFFFF888004B00000, 0x1000, 0x7F0000000000
PLUGIN = data_dir("images") / "plugin"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of the plugin as a program of this host's, in a QEMU whose registers can be read."""
    program = tmp_path_factory.mktemp("executing") / "driver"
    sources = [str(Path(__file__).with_name("executing_driver.c")), str(PLUGIN / "executing.c")]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", f"-I{PLUGIN}"]
    subprocess.run(["gcc", *flags, "-o", str(program), *sources], check=True, timeout=600)
    return program


def in_kernel(cpu: int) -> str:
    return f"block {KERNELS + cpu * APART:x} {USERS:x}"


def by_user(cpu: int) -> str:
    return f"block {USERS if cpu else 0:x} {KERNELS + cpu * APART:x}"


FORGET = "forget 0 0"


@pytest.mark.parametrize(
    ("blocks", "numbers"),
    [
        ([in_kernel(3), in_kernel(1), in_kernel(3), in_kernel(1)], [0, 1, 0, 1]),
        ([by_user(2), in_kernel(2), by_user(0), in_kernel(0), by_user(2)], [0, 0, 1, 1, 0]),
        ([by_user(1), by_user(0), FORGET, by_user(1), by_user(0)], [0, 1, 0, 1, 0]),
        ([*map(by_user, range(17)), FORGET, by_user(16), by_user(0)], [*range(17), 0, 0, 1]),
    ],
    ids=[
        "apart",
        "in its kernel and its program",
        "the one that forgets is the first",
        "no more than there is room for",
    ],
)
def test_a_cpu_keeps_the_number_of_its_turn(driver: Path, blocks: Sequence[str], numbers: Sequence[int]) -> None:
    text = "".join(f"{block}\n" for block in blocks)
    done = subprocess.run([str(driver)], input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    assert [int(line) for line in done.stdout.splitlines()] == [*numbers]
