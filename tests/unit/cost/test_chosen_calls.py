# SPDX-License-Identifier: GPL-2.0-only
"""Is the table of calls one that experiments take and both architectures compile, and is the best call chosen of it?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loaded_tables import calls_experiment

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.catalog.system_calls import system_calls
from orchestrator.cost.call_table import ReachedNames, call_table, reaching_system_call
from orchestrator.errors import UsageError
from orchestrator.paths import data_dir

IMAGES = data_dir("images")
FOLDER = IMAGES / "guest" / "calls"
REACHED = ReachedNames(
    calls={
        "read_file": {"vfs_read": 1, "vfs_llseek": 1, "shmem_file_read_iter": 1},
        "write_null": {"vfs_write": 1, "fdget_pos": 1},
        "rename": {"vfs_rename": 2, "putname": 4, "d_alloc": 3},
        "mkdir": {"d_alloc": 2},
        "open": {"putname": 1, "do_filp_open.isra.0": 1, "vfs_open": 1},
        "of another version": {"vfs_read": 1, "gone": 1},
    }
)


def test_each_workload_is_in_the_table_and_each_call_has_one() -> None:
    of_c = {call.name for call in call_table().values() if call.call is None}
    assert {file.stem for file in FOLDER.glob("*.c")} == of_c
    assert len(call_table()) > 35


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_workload_compiles_without_a_warning(arch: str, tmp_path: Path) -> None:
    """They include the kernel's headers, which are there for both architectures."""
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", ARCHITECTURES[arch].gcc_flag]
    folders = [IMAGES / "guest", IMAGES / "workload", guest_headers(BuildContext(Cache(tmp_path)))]
    places = [*(f"-I{folder}" for folder in folders), f"-idirafter/usr/include/{HOST.triplet}"]
    files = sorted(map(str, FOLDER.glob("*.c")))
    done = subprocess.run(["gcc", *flags, *places, "-fsyntax-only", *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", call_table())
def test_every_call_is_a_benchmark_of_an_experiment(name: str) -> None:
    call = call_table()[name]
    modules = {"kernel_modules": call.modules} if call.modules else {}
    calls_experiment(points=["vfs_read"], benchmark=call.benchmark, **modules)
    assert call.call is None or call.call in system_calls()
    assert call.title
    assert all(call.events)


def test_a_call_that_enters_it_the_fewest_times_comes_first_then_the_table_s_order() -> None:
    call = REACHED.call("vfs_read")
    assert call is not None
    assert (call.name, call.hits, call.name_reached) == ("read_file", 1, "vfs_read")
    assert call.benchmark == {"name": "workload", "file": str(FOLDER / "read_file.c")}
    once, only = REACHED.call("putname"), REACHED.call("vfs_rename")
    assert once is not None
    assert (once.name, once.hits) == ("open", 1)
    assert only is not None
    assert (only.name, only.benchmark["hits"]) == ("rename", 2)
    fewest = REACHED.call("d_alloc")
    assert fewest is not None
    assert (fewest.name, fewest.hits) == ("mkdir", 2)


def test_a_call_that_enters_one_function_of_a_pattern_comes_first() -> None:
    """A program at all of them runs as often as they are entered together."""
    call = REACHED.call("vfs_*")
    assert call is not None
    assert (call.name, call.name_reached) == ("write_null", "vfs_write")
    with pytest.raises(UsageError, match=r"read_file reaches 2 of this pattern: vfs_llseek, vfs_read"):
        REACHED.call("vfs_[lr]*[dk]")


def test_a_pattern_s_first_function() -> None:
    for pattern, function in (("vfs_re*", "vfs_read"), ("do_filp_open.isra.0", "do_filp_open.isra.0")):
        call = REACHED.call(pattern)
        assert call is not None
        assert call.name_reached == function


@pytest.mark.parametrize("function", ["vfs_raed", "gone", "", "do_filp_open", "vfs_read[", "*_nothing"])
def test_a_function_that_no_call_reaches(function: str) -> None:
    assert REACHED.call(function) is None


def test_functions_of_similar_names() -> None:
    assert REACHED.nearest("vfs_raed")[0] == "vfs_read"
    assert REACHED.nearest("do_filp_open")[0] == "do_filp_open.isra.0"
    assert REACHED.nearest("qqqq") == []


def test_system_calls_of_tracepoints() -> None:
    for name, call, hits in (
        ("getppid", "getppid", 1),
        ("openat", "open", 1),
        ("read", "read_zero", 1),
        ("newstat", "newstat", 1),
        ("rename", "rename", 2),
        ("execve", "exec", 1),
        ("fork", "fork", 1),
    ):
        found_call = reaching_system_call(name)
        assert found_call is not None
        assert (found_call.name, found_call.name_reached, found_call.hits) == (call, name, hits)
    assert reaching_system_call("swapon") is None


def test_a_pattern_of_system_calls_is_reached_by_a_call_that_makes_one_of_them() -> None:
    for pattern, call, function in (("open*", "open", "openat"), ("*ppid", "getppid", "getppid")):
        found_call = reaching_system_call(pattern)
        assert found_call is not None
        assert (found_call.name, found_call.name_reached, found_call.hits) == (call, function, 1)
    assert reaching_system_call("swap*") is None
    with pytest.raises(UsageError, match="mkdir makes 2 system calls of this pattern: mkdir, rmdir"):
        reaching_system_call("[mr][km]*dir")
