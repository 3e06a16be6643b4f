# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.guest_headers import guest_headers, system_calls_header
from orchestrator.catalog.system_calls import SystemCall, system_calls


def test_header_has_each_architecture_s_calls_in_the_order_of_their_numbers() -> None:
    calls = [
        SystemCall(name="read", i386=3, x86_64=0),
        SystemCall(name="waitpid", i386=7),
        SystemCall(name="pread64", i386=180, x86_64=17),
        SystemCall(name="fork", i386=2, x86_64=57),
    ]
    header = system_calls_header(calls)
    i386, _, x86_64 = header.partition("#else")
    assert re.findall(r"__NR_(\w+) (\d+)", i386) == [("fork", "2"), ("read", "3"), ("waitpid", "7"), ("pread64", "180")]
    assert re.findall(r"__NR_(\w+) (\d+)", x86_64) == [("read", "0"), ("pread64", "17"), ("fork", "57")]
    assert "#define SYS_read __NR_read\n" in i386
    assert "waitpid" not in x86_64


@pytest.mark.parametrize("arch", ["i386", "x86_64"])
def test_guest_programs_get_the_numbers_of_the_table(tmp_path: Path, arch: Arch) -> None:
    header = (guest_headers(BuildContext(Cache(tmp_path))) / "system_calls.h").read_text()
    part = header.partition("#else")[2 if arch == "x86_64" else 0]
    numbers = {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", part, re.MULTILINE)}
    assert numbers == {
        name: number for name, call in system_calls().items() if (number := call.number(arch, "auto")) is not None
    }
