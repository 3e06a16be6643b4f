# SPDX-License-Identifier: GPL-2.0-only
"""Does the plugin count what lies between marks, and are its tables and its output bounded?"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from orchestrator.paths import data_dir
from orchestrator.profile.counts import Code, Region, read_regions

ARM, BEGIN, END, KEEP, DISARM = 1, 2, 3, 4, 5
START = 0xFFFFFFFF81000000
NOP, CALL, RETURN, JUMP = "90", "e800000000", "c3", "ebf9"
LIMIT = 64 << 20


def block(address: int, *codes: str) -> str:
    return " ".join((f"{address:x}", *codes))


def mark(number: int) -> str:
    return block(0x1000 + 16 * number, "0f1f8400" + (0x4B500000 + number).to_bytes(4, "little").hex())


def region(*blocks: str) -> Iterator[str]:
    yield from (mark(BEGIN), *blocks, mark(END), mark(KEEP))


def nested(depth: int, leaves: int) -> Iterator[str]:
    """Functions that call each other, and the innermost one so many others, one by one."""
    for level in range(depth):
        yield block(START + level * 64, CALL)
    innermost = START + depth * 64
    for leaf in range(leaves):
        yield block(innermost, CALL)
        yield block(innermost + (leaf + 1) * 64, RETURN)
        yield block(innermost + 5, JUMP)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin as a program of this host's."""
    program = tmp_path_factory.mktemp("count") / "driver"
    images = data_dir("images")
    sources = [Path(__file__).parent / "count_driver.c", *sorted((images / "plugin").glob("*.c"))]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin"]
    includes = [f"-I{images / 'plugin'}", f"-I{images / 'guest'}"]
    argv = ["gcc", *flags, *includes, "-o", str(program), *map(str, sources)]
    subprocess.run(argv, check=True, timeout=600)
    return program


def execute(driver: Path, counts: Path, blocks: Iterable[str], *options: str) -> None:
    text = "".join(f"{one}\n" for one in blocks)
    subprocess.run([driver, f"out={counts}", *options], input=text, text=True, check=True, timeout=600)


def test_what_lies_between_marks_is_counted_once_armed(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    once = block(START, NOP, RETURN)
    before = [once, mark(ARM), once]
    execute(driver, counts, [*before, *region(once, once, block(START + 8, NOP)), once, *region(once)])
    expected = {Code(START, NOP): 2, Code(START + 1, RETURN): 2, Code(START + 8, NOP): 1}
    found = read_regions(counts, 0)
    assert [one.total for one in found] == [5, 2]
    assert {code: one.executed for code, one in found[0].counts.items()} == expected


@pytest.mark.parametrize("options", [(), ("stacks=on",), ("detail=on",)])
def test_nothing_is_kept_behind_the_end_of_the_counting(driver: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    counts = tmp_path / "counts"
    once = block(START, NOP)
    profiled = [mark(ARM), *region(once), mark(DISARM)]
    execute(driver, counts, [*profiled, *region(once), *region(once), *profiled, *region(once)], *options)
    assert [one.total for one in read_regions(counts, 0)] == [1, 1]


def test_a_block_that_is_translated_again_takes_no_more_room(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    code = [block(START + 64 * at, JUMP) for at in range(2000)]
    profiled = [mark(ARM), *region(*code), mark(DISARM)]
    execute(driver, counts, profiled * 70, "stacks=on")
    found = read_regions(counts, 0)
    assert len(found) == 70
    assert found[-1] == found[0]


def test_stacks_fill_no_more_than_the_file_may_have(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    once = list(nested(100, 10_000))
    execute(driver, counts, [mark(ARM), *region(*once), *region(*once), *region(*once), *region(*once)], "stacks=on")
    assert counts.stat().st_size <= LIMIT + 100
    assert counts.read_bytes().endswith(b"\nerror more than 64 MiB of stacks\n")


def test_stacks_have_what_led_to_each_block(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    execute(driver, counts, [mark(ARM), *region(*nested(1, 2))], "stacks=on")
    found: Region = read_regions(counts, 0)[0]
    inner, one, other = (START + 64 * at for at in (1, 2, 3))
    # A block is counted when the next one begins: the last one here has none behind it.
    assert found.stacks == {
        (START,): 1,
        (inner, inner): 2,
        (inner, inner + 5): 1,
        (inner, one, one): 1,
        (inner, other, other): 1,
    }


@pytest.mark.parametrize("beginning", ["e8", "48", "8945", "ff", "cc", "f3"])
def test_an_instruction_that_crosses_into_another_page_counts_where_it_is_executed(
    driver: Path, tmp_path: Path, beginning: str
) -> None:
    """Whatever its first bytes look like: QEMU 7.2 shows them as the end of the block before."""
    counts = tmp_path / "counts"
    call, inner = START, START + 0x2000
    before, after = block(inner, NOP, NOP, f"-{beginning}"), block(inner + 2, "48c7c001000000", RETURN)
    blocks = [block(call, CALL), before, after, block(call + 5, NOP), block(call + 6, JUMP)]
    execute(driver, counts, [mark(ARM), *region(*blocks, *blocks)], "stacks=on", "detail=on")
    found: Region = read_regions(counts, 0)[0]
    assert found.stacks == {
        (call,): 2,
        (inner, inner): 4,
        (inner, inner + 2): 4,
        (call + 5,): 2,
        (call + 6,): 1,  # a block is counted when the next one begins
    }
    assert found.total == sum(found.stacks.values()) + 1
    taken = {code.code: one.taken for code, one in found.counts.items() if one.taken}
    assert taken == {CALL: 2, RETURN: 2, JUMP: 1}


@pytest.mark.parametrize("options", [(), ("stacks=on",), ("detail=on",), (f"together={START:x}",)])
def test_repetitions_are_told_from_executions(driver: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Three calls: of three repetitions, of one, and of none, each with an execution that ends it."""
    counts = tmp_path / "counts"
    repeated = "f348ab"

    def call(repetitions: int) -> Iterator[str]:
        yield block(START, NOP, repeated)
        yield from [block(START + 1, repeated)] * repetitions
        yield block(START + 4, RETURN)

    execute(driver, counts, [mark(ARM), *region(*call(3), *call(1), *call(0), block(START + 64, NOP))], *options)
    found = read_regions(counts, 0)[0].counts[Code(START + 1, repeated)]
    assert (found.executed, found.taken) == (7, 4)
