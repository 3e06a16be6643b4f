# SPDX-License-Identifier: GPL-2.0-only
"""Does the plugin count what lies between marks, and are its tables and its output bounded?"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.paths import data_dir
from orchestrator.profile.counted.counts import Code, ExecutedBlock, Region, read_regions

ARM, BEGIN, END, KEEP, DISARM, ADD = 1, 2, 3, 4, 5, 6
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


def part(*blocks: str) -> Iterator[str]:
    yield from (mark(BEGIN), *blocks, mark(END), mark(ADD))


KEPT_APART = "kept-apart"
OTHER_PLUGINS = ("cover.c", "cpus.c", "executing.c", "lines.c")


@pytest.fixture(scope="module", params=["translated-anew", KEPT_APART])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin as a program of this host's, in a QEMU that has one translation of each block, or two."""
    qemu: str = request.param
    program = tmp_path_factory.mktemp("count") / qemu
    images = data_dir("images")
    parts = sorted(file for file in (images / "plugin").glob("*.c") if file.name not in OTHER_PLUGINS)
    sources = [Path(__file__).parent / "count_driver.c", *parts]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin"]
    if qemu == KEPT_APART:
        flags.append("-DKEEPS_APART")
    includes = [f"-I{images / 'plugin'}", f"-I{images / 'guest'}"]
    argv = ["gcc", *flags, *includes, "-o", str(program), *map(str, sources)]
    subprocess.run(argv, check=True, timeout=600)
    return program


def execute(driver: Path, counts: Path, blocks: Iterable[str], *options: str) -> int:
    """Returns how many blocks were translated."""
    text = "".join(f"{one}\n" for one in blocks)
    argv = [str(driver), f"out={counts}", *options]
    return int(subprocess.run(argv, input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout)


def test_what_lies_between_marks_is_counted_once_armed(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    once = block(START, NOP, RETURN)
    before = [once, mark(ARM), once]
    execute(driver, counts, [*before, *region(once, once, block(START + 8, NOP)), once, *region(once)])
    expected = {Code(START, NOP): 2, Code(START + 1, RETURN): 2, Code(START + 8, NOP): 1}
    regions = read_regions(counts, 0)
    assert [one.total for one in regions] == [5, 2]
    assert {code: one.executed for code, one in regions[0].counts.items()} == expected


CACHES = tuple(f"{name}=16384:4:64" for name in ("l1i", "l1d", "l2", "itlb", "dtlb"))


@pytest.mark.parametrize("options", [(), ("stacks=on",), ("detail=on",), CACHES])
def test_parts_of_a_region_are_kept_as_their_sum(driver: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    first, other = block(START, NOP, JUMP), block(START + 8, NOP, NOP, JUMP)
    parted = [*part(first), *part(other, first), *region(other), *part(other)]
    execute(driver, tmp_path / "parts", [mark(ARM), *parted, mark(DISARM), mark(ARM), *region(first)], *options)
    execute(driver, tmp_path / "whole", [mark(ARM), *region(first, other, first, other), *region(first)], *options)
    parts, whole = (read_regions(tmp_path / name, 0) for name in ("parts", "whole"))
    assert [one.total for one in parts] == [10, 2]
    assert parts[0].counts.keys() == whole[0].counts.keys()
    assert {code: counts.executed for code, counts in parts[0].counts.items()} == {
        code: counts.executed for code, counts in whole[0].counts.items()
    }
    # What leaves the last block of a region is not known: it is not on a stack.
    assert sum(parts[0].stacks.values()) == (3 if options == ("stacks=on",) else 0)
    assert {name: sum(lookups) for name, lookups in parts[0].lookups.items()} == {
        name: sum(lookups) for name, lookups in whole[0].lookups.items()
    }


def test_frequent_execution_takes_no_more_room(driver: Path, tmp_path: Path) -> None:
    code = [block(START + 64 * at, NOP, NOP, NOP, JUMP) for at in range(10_000)]
    execute(
        driver, tmp_path / "counts", [mark(ARM), *(line for _ in range(40) for line in part(*code)), *region(*code)]
    )
    (found,) = read_regions(tmp_path / "counts", 0)
    assert found.total == 41 * 4 * len(code)


def test_an_error_is_said_again_where_the_lab_has_cut_it_off(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    execute(driver, counts, [mark(ARM), mark(KEEP), mark(DISARM), mark(ARM), *region(block(START, NOP))])
    assert counts.read_text() == "error a region is to be kept, and none has ended\n" * 2


@pytest.mark.parametrize("options", [(), ("stacks=on",), ("detail=on",)])
def test_nothing_is_kept_behind_the_end_of_the_counting(driver: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    counts = tmp_path / "counts"
    once = block(START, NOP)
    profiled = [mark(ARM), *region(once), mark(DISARM)]
    execute(driver, counts, [*profiled, *region(once), *region(once), *profiled, *region(once)], *options)
    assert [one.total for one in read_regions(counts, 0)] == [1, 1]


def test_profiled_blocks_are_translated_once_if_qemu_keeps_them(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    profiled = [mark(ARM), *region(block(START, NOP)), mark(DISARM), block(START, NOP)]
    often = [execute(driver, counts, profiled * times) for times in (10, 20)]
    if driver.name == KEPT_APART:
        assert often[0] == often[1]
    else:
        assert often[1] > 1.9 * often[0]
    assert [one.total for one in read_regions(counts, 0)] == [1] * 20


def test_much_is_executed_in_translations_that_are_made_for_it(driver: Path, tmp_path: Path) -> None:
    """In all regions together, and then in each: those that QEMU keeps apart are slower."""
    counts = tmp_path / "counts"
    much = [block(START, *[NOP] * 14, JUMP)] * 150_000
    profiled = [mark(ARM), *region(*much), *region(*much), mark(DISARM)]
    after = [mark(ARM), *region(block(START, NOP)), mark(DISARM)]
    for options in ((), ("stacks=on",)):
        once, twice = (execute(driver, counts, [*profiled, *after * times], *options) for times in (10, 20))
        assert twice > 1.7 * once
        assert [one.total for one in read_regions(counts, 0)] == [15 * len(much)] * 2 + [1] * 20


def test_a_block_that_is_translated_again_takes_no_more_room(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    code = [block(START + 64 * at, JUMP) for at in range(2000)]
    profiled = [mark(ARM), *region(*code), mark(DISARM)]
    execute(driver, counts, profiled * 70, "stacks=on")
    regions = read_regions(counts, 0)
    assert len(regions) == 70
    assert regions[-1] == regions[0]


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


def test_the_order_has_each_block_with_its_calls_and_its_last_instruction(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    plain = [block(START, JUMP)] * 3  # the last one has none behind it
    execute(driver, counts, [mark(ARM), *region(*nested(1, 1)), *region(*plain)], "order=on")
    first, second = read_regions(counts, 0)
    inner, leaf = START + 64, START + 128
    assert first.order == [
        ExecutedBlock(START, 1, 0, Code(START, CALL)),
        ExecutedBlock(inner, 1, 1, Code(inner, CALL)),
        ExecutedBlock(leaf, 1, 2, Code(leaf, RETURN)),
    ]
    assert first.stacks  # which come with it
    assert second.order == [ExecutedBlock(START, 1, 0, Code(START, JUMP))] * 2


def test_an_order_without_room_is_an_error(driver: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    much = [block(START, JUMP)] * ((1 << 18) + 2)
    execute(driver, counts, [mark(ARM), *region(*much)], "order=on")
    assert counts.read_bytes().endswith(b"\nerror more blocks in their order than there is room for\n")


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


PROGRAM, ENTRY, DISPATCH, READ, WRITE, WORK, SWITCH, DEATH, FAULT, TICK = (
    0x400000,
    *(START + 0x100 * at for at in range(9)),
)
LANDMARKS = {
    **dict.fromkeys((ENTRY, DISPATCH, WORK), "f"),
    **dict.fromkeys((READ, WRITE), "c"),
    SWITCH: "s",
    DEATH: "d",
    **dict.fromkeys((FAULT, TICK), "t"),
    START + 0x2000: "e",
}
LEAVE, INTERRUPT_RETURN = "0f07", "48cf"
USER = block(PROGRAM, NOP, "0f05")
ENTER, LEFT = (
    [USER, block(ENTRY, NOP, CALL), block(DISPATCH, CALL)],
    [block(DISPATCH + 5, RETURN), block(ENTRY + 6, LEAVE)],
)
TASKS = (START + 0x10000, START + 0x20000)


def switched(of: int, to: int) -> list[str]:
    """What a function does that gives the processor to another task, which returns from the switch at the end."""
    stack_pointers = [f"4889a7>{TASKS[of]:x}", f"488ba6<{TASKS[to]:x}"]
    return [block(WORK, CALL), block(SWITCH, "55", *stack_pointers, JUMP), block(SWITCH + 64, RETURN)]


def follow(driver: Path, folder: Path, blocks: Iterable[str]) -> Path:
    landmarks, counts = folder / "landmarks", folder / "counts"
    landmarks.write_text("".join(f"{address:x} {kind}\n" for address, kind in sorted(LANDMARKS.items())))
    execute(driver, counts, blocks, f"together={START:x}", f"landmarks={landmarks}")
    return counts


def followed(driver: Path, folder: Path, *blocks: str, before: Sequence[str] = ()) -> Region:
    counts = follow(driver, folder, [*before, mark(ARM), *ENTER, *LEFT, *region(USER, *blocks)])
    (found,) = read_regions(counts, 0)
    assert sum(found.stacks.values()) == found.total
    return found


def test_a_system_call_has_what_enters_and_leaves_for_it(driver: Path, tmp_path: Path) -> None:
    found = followed(driver, tmp_path, *ENTER, block(READ, NOP, RETURN), *LEFT, USER)
    assert found.stacks == {
        (0,): 6,
        (READ, ENTRY, ENTRY): 4,  # the call of the dispatch among them: which call it is shows behind that
        (READ, ENTRY, DISPATCH, READ, READ): 2,
        (READ, ENTRY, DISPATCH, DISPATCH): 1,
    }


def test_a_call_that_jumps_to_its_function_is_known(driver: Path, tmp_path: Path) -> None:
    jumps = [USER, block(ENTRY, NOP, CALL), block(DISPATCH, JUMP), block(READ, RETURN), block(ENTRY + 6, LEAVE)]
    found = followed(driver, tmp_path, *jumps, USER)
    assert found.stacks == {(0,): 6, (READ, ENTRY, ENTRY): 4, (READ, ENTRY, DISPATCH, READ): 1}


def test_a_task_that_waits_keeps_its_call(driver: Path, tmp_path: Path) -> None:
    reads, writes = [*ENTER, block(READ, NOP, CALL)], [*ENTER, block(WRITE, NOP, CALL)]
    back = block(WORK + 5, RETURN)
    found = followed(
        driver,
        tmp_path,
        *(*reads, *switched(0, 1), block(WORK + 64, LEAVE), *writes, *switched(1, 0)),
        *(back, block(READ + 6, RETURN), *LEFT, USER),
    )
    inner = {
        # The switch is of the task that is left, what follows it of the other one, which was not seen before.
        (READ, ENTRY, DISPATCH, READ, WORK, SWITCH, SWITCH): 5,
        (WRITE, ENTRY, DISPATCH, WRITE, WORK, SWITCH, SWITCH): 4,
        (SWITCH,): 1,
        (READ, ENTRY, DISPATCH, READ, WORK, WORK): 2,
        (WRITE, ENTRY, DISPATCH, WRITE, WORK, WORK): 1,
        (WORK,): 1,
        (READ, ENTRY, DISPATCH, READ, READ): 3,
        (WRITE, ENTRY, DISPATCH, WRITE, WRITE): 2,
        (READ, ENTRY, DISPATCH, DISPATCH): 1,
        (READ, ENTRY, ENTRY): 4,
        (WRITE, ENTRY, ENTRY): 3,
    }
    assert found.stacks == {(0,): 8, **inner}


def test_a_task_that_has_ended_leaves_no_call_behind(driver: Path, tmp_path: Path) -> None:
    ends = [*ENTER, block(READ, NOP, CALL), block(DEATH, CALL), *switched(0, 1), block(WORK + 64, LEAVE)]
    again = [*ENTER, block(WRITE, NOP, CALL), *switched(1, 0), block(WORK + 64, LEAVE), USER]
    assert followed(driver, tmp_path, *ends, *again).stacks[WORK,] == 2


def test_what_enters_for_a_call_that_is_unknown_when_its_task_waits_is_counted(driver: Path, tmp_path: Path) -> None:
    waits = block(SWITCH, "55", f"488ba6<{TASKS[1]:x}", NOP)
    assert followed(driver, tmp_path, waits, block(WORK, NOP), USER).stacks[SWITCH, SWITCH] == 3


@pytest.mark.parametrize("trap", [FAULT, TICK])
def test_what_a_trap_interrupts_goes_on(driver: Path, tmp_path: Path, trap: int) -> None:
    """Whatever its block would have done: a call, a return, or nothing since an instruction inside has faulted."""
    trapped = block(trap, NOP, INTERRUPT_RETURN)
    calls = [block(READ, NOP, CALL), trapped, block(WORK, RETURN), trapped, block(READ + 6, NOP, RETURN)]
    faults = [block(READ + 6, NOP, "-50"), trapped, block(READ + 7, NOP, RETURN)]
    found = followed(driver, tmp_path, *ENTER, *calls[:-1], *faults, *LEFT, trapped, USER)
    read = (READ, ENTRY, DISPATCH, READ)
    assert {stack: count for stack, count in found.stacks.items() if trap in stack} == {
        (*read, trap, trap): 4,
        (*read, WORK, trap, trap): 2,
        (trap, trap): 2,
    }
    assert found.stacks[*read, READ] == 5
    assert found.stacks[*read, WORK, WORK] == 1
    assert found.stacks[READ, ENTRY, DISPATCH, DISPATCH] == 1


def test_arming_again_makes_room_for_stacks(driver: Path, tmp_path: Path) -> None:
    too_deep = [mark(ARM), *ENTER, *[block(WORK, CALL)] * 200, mark(DISARM)]
    found = followed(driver, tmp_path, *ENTER, block(READ, NOP, RETURN), *LEFT, USER, before=too_deep)
    assert found.stacks[READ, ENTRY, DISPATCH, READ, READ] == 2


def test_arming_again_makes_no_room_in_the_file(driver: Path, tmp_path: Path) -> None:
    rounds = [mark(ARM), USER, *region(*nested(110, 10_000)), mark(DISARM)] * 4
    counts = follow(driver, tmp_path, rounds)
    assert LIMIT / 4 < counts.stat().st_size < LIMIT + 1000
    assert "64 MiB" in counts.read_bytes()[-200:].decode()


ANY_BLOCK = st.builds(
    block,
    st.sampled_from([PROGRAM, *LANDMARKS, WORK + 64, START + 0x3000]),
    st.sampled_from([NOP, "50", f"55>{TASKS[0]:x}", f"55<{TASKS[1]:x}"]),
    st.sampled_from([NOP, CALL, RETURN, JUMP, LEAVE, INTERRUPT_RETURN]),
)


@given(st.lists(ANY_BLOCK, max_size=60))
@settings(max_examples=30)
def test_whatever_runs_the_stacks_add_up(
    driver: Path, tmp_path_factory: pytest.TempPathFactory, blocks: list[str]
) -> None:
    followed(driver, tmp_path_factory.mktemp("any"), *blocks, USER)
