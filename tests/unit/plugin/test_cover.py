# SPDX-License-Identifier: GPL-2.0-only
"""Does the coverage plugin count each instruction in its ranges, in a table that is whole at any time?"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import EvidenceError
from orchestrator.paths import data_dir
from orchestrator.pytest_plugin.coverage import read_executed

START = 0xC0001000
NOP, LONG_NOP, RETURN = "90", "0f1f8400000000", "c3"
ROOM = 1 << 18


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin as a program of this host's, in a QEMU of version 7.2."""
    program = tmp_path_factory.mktemp("cover") / "driver"
    images = data_dir("images")
    parts = [images / "plugin" / name for name in ("cover.c", "translations.c")]
    sources = [Path(__file__).parent / "count_driver.c", *parts]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", f"-I{images / 'plugin'}"]
    argv = ["gcc", *flags, f"-I{images / 'guest'}", "-o", str(program), *map(str, sources)]
    subprocess.run(argv, check=True, timeout=600)
    return program


def execute(driver: Path, table: Path, blocks: list[str], *options: str) -> int:
    text = "".join(f"{block}\n" for block in blocks)
    return subprocess.run([str(driver), f"out={table}", *options], input=text, text=True, timeout=600).returncode


def test_instructions_in_the_ranges_are_counted(driver: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    block = f"{START:x} {NOP} {LONG_NOP} {RETURN}"
    below = f"{START - 8:x} {LONG_NOP} {RETURN}"
    ranges = (f"code={START:x}-{START + 8:x}", f"code={START + 64:x}-{(1 << 64) - 1:x}")
    assert execute(driver, table, [block, below, block, f"{START + 64:x} {RETURN}"], *ranges) == 0
    assert read_executed(table) == {START: 2, START + 1: 2, START + 64: 1}
    assert table.stat().st_mode & 0o777 == 0o600


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 400), max_size=60))
def test_any_order(driver: Path, tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    table = tmp_path_factory.mktemp("any") / "table"
    assert execute(driver, table, [f"{START + at:x} {NOP} {RETURN}" for at in order], f"code={START:x}-ffffffff") == 0
    expected = Counter(START + at for at in order) + Counter(START + at + 1 for at in order)
    assert read_executed(table) == expected


def test_a_full_table_is_an_error(driver: Path, tmp_path: Path) -> None:
    table, blocks = tmp_path / "table", ROOM // 8
    most = [f"{START + 8 * at:x} {' '.join([NOP] * 8)}" for at in range(blocks)]
    assert execute(driver, table, most[:-1], f"code={START:x}-ffffffff") == 0
    assert len(read_executed(table)) == ROOM - 8
    assert execute(driver, table, [*most, f"{START - 8:x} {NOP}"], f"code={START - 8:x}-ffffffff") == 0
    with pytest.raises(EvidenceError, match=f"more than {ROOM} different instructions"):
        read_executed(table)


@pytest.mark.parametrize(
    "option", ["code=", "code=c0-", "code=-c0", "code=c0-c0", "code=c1-c0", "code=c0-c1x", "code=c0c1", "cod=c0-c1", ""]
)
def test_wrong_options(driver: Path, tmp_path: Path, option: str) -> None:
    assert execute(driver, tmp_path / "table", [], option) != 0


def test_a_table_that_cannot_be_made(driver: Path, tmp_path: Path) -> None:
    assert execute(driver, tmp_path, [], "code=c0-c1") != 0
    assert execute(driver, tmp_path / "none" / "table", [], "code=c0-c1") != 0


def test_a_guest_that_has_ended_has_executed_nothing_more(tmp_path: Path) -> None:
    assert read_executed(tmp_path / "table") == {}
