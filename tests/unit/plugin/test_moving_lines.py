# SPDX-License-Identifier: GPL-2.0-only
"""Do lines move between the caches of several CPUs as in a simple model of such caches?"""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.paths import data_dir

CPUS, LINE, ROOM = 16, 64, 1 << 16


class Access(NamedTuple):
    what: str
    cpu: int = 0
    physical: int = 0
    size: int = 1
    in_window: bool = True

    @property
    def line(self) -> str:
        return f"{self.what} {self.cpu:x} {self.physical:x} {self.size:x} {int(self.in_window)}\n"


class Found(NamedTuple):
    moved: list[int]
    contended: list[int]
    lines: int


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a program of this host's."""
    program = tmp_path_factory.mktemp("lines") / "driver"
    plugin = data_dir("images") / "plugin"
    sources = [Path(__file__).parent / "lines_driver.c", plugin / "lines.c"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fsanitize=undefined", f"-I{plugin}"]
    argv = ["gcc", *flags, "-fno-sanitize-recover", "-o", str(program), *map(str, sources)]
    subprocess.run(argv, check=True, timeout=600)
    return program


def found(driver: Path, accesses: Sequence[Access], status: int = 0) -> Found:
    text = "".join(access.line for access in accesses)
    finished = subprocess.run([driver], input=text, capture_output=True, text=True, timeout=600)
    assert finished.returncode == status
    *cpus, lines = finished.stdout.splitlines()
    pairs = [[int(word) for word in cpu.split()] for cpu in cpus]
    return Found([moved for moved, _ in pairs], [accessed for _, accessed in pairs], int(lines))


def expected(accesses: Sequence[Access]) -> Found:
    """A line moves to who has not seen the last store of another; the history of each line says who has."""
    moved, history = Counter[int](), defaultdict[int, list[tuple[int, bool]]](list)
    window = defaultdict[int, list[tuple[int, bool]]](list)
    for what, cpu, physical, size, in_window in accesses:
        if what == "forget":
            history.clear()
            window.clear()
            continue
        for line in range(physical // LINE, (physical + size - 1) // LINE + 1):
            before, store = history[line], what == "store"
            last = max((at for at, (_, stored) in enumerate(before) if stored), default=None)
            moved[cpu] += last is not None and all(one != cpu for one, _ in before[last:])
            before.append((cpu, store))
            window[line] += [(cpu, store)] if in_window else []
    shared = [
        pairs for pairs in window.values() if len({cpu for cpu, _ in pairs}) > 1 and any(store for _, store in pairs)
    ]
    accessed = Counter(cpu for pairs in shared for cpu, _ in pairs)
    return Found([moved[cpu] for cpu in range(CPUS)], [accessed[cpu] for cpu in range(CPUS)], len(shared))


@given(
    accesses=st.lists(
        st.builds(
            Access,
            st.sampled_from(["load", "store", "store", "load", "forget"]),
            st.integers(0, 3) | st.just(CPUS - 1),
            st.integers(0, 4 * LINE),
            st.sampled_from([1, 8, LINE]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_lines_move_as_in_a_simple_model(driver: Path, accesses: Sequence[Access]) -> None:
    assert found(driver, accesses) == expected(accesses)


def test_a_counter_of_all_cpus_moves_with_each_addition_and_one_of_each_cpu_never(driver: Path) -> None:
    rounds = [(cpu, what) for _ in range(10) for cpu in range(4) for what in ("load", "store")]
    shared = found(driver, [Access(what, cpu, 8) for cpu, what in rounds])
    assert (shared.moved[:4], shared.contended[:4], shared.lines) == ([9, 10, 10, 10], [20] * 4, 1)
    own_found = found(driver, [Access(what, cpu, cpu * LINE) for cpu, what in rounds])
    assert (sum(own_found.moved), sum(own_found.contended), own_found.lines) == (0, 0, 0)


def test_lines_that_all_only_read_do_not_move(driver: Path) -> None:
    read = found(driver, [Access("load", cpu, 8) for _ in range(3) for cpu in range(4)])
    assert (sum(read.moved), read.lines) == (0, 0)


def test_it_says_where_there_is_no_room(driver: Path) -> None:
    accesses = [Access("load", 0, number * LINE) for number in range(ROOM + 1)]
    found(driver, accesses[:-1])
    found(driver, accesses, status=1)
