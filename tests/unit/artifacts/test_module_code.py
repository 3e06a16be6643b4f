# SPDX-License-Identifier: GPL-2.0-only
"""Are the functions of a module's file found as those of a kernel's image are, with the tracer's calls as nops?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import FTRACE_NOPS, entry_offset
from orchestrator.artifacts.module_files import module_code
from orchestrator.errors import LabError
from orchestrator.probes.point import wrong_point_reason

SOURCE = Path(__file__).parent / "tiny" / "in_module.S"
FRAMES = {4: "%ebp", 8: "%rbp"}


@pytest.fixture(params=[4, 8])
def code(request: pytest.FixtureRequest, tmp_path: Path) -> KernelCode:
    """A module for pointers of four and of eight bytes."""
    file = tmp_path / "mine.ko"
    frame = f"-DFRAME={FRAMES[request.param]}"
    subprocess.run(["gcc", f"-m{8 * request.param}", frame, "-c", "-o", file, SOURCE], check=True, timeout=600)
    return module_code(file)


def test_the_tracer_s_call_is_a_nop_and_another_call_is_not(code: KernelCode) -> None:
    start = code.function("traced")
    assert start is not None
    assert code.read(start, 5) in FTRACE_NOPS
    assert code.read(start + 6, 1) == b"\xe8"
    assert [entry_offset(code, name) for name in ("traced", "untraced")] == [5, 0]


@pytest.mark.parametrize(
    ("symbol", "offset", "reason"),
    [
        ("traced", None, None),
        ("traced", 5, None),
        ("traced", 6, None),
        ("traced", 7, "traced+0x7 is inside the instruction at +0x6 (5 bytes): instructions begin at +0x5, +0x6, +0xb"),
        ("cold", 1, None),
        ("cold", 2, "cold+0x2 is beyond the end of cold, which has 0x2 bytes"),
        ("typeless", None, None),
        ("typeless", 1, "typeless+0x1 is beyond the end of typeless, which has 0x1 bytes"),
        ("beginning", None, "beginning is __init: its memory is freed when the module has been loaded"),
        ("init_module", None, "init_module is __init: its memory is freed when the module has been loaded"),
        ("ending", None, "ending is __exit: it runs when the module is unloaded, behind all calls"),
        ("cleanup_module", None, "cleanup_module is __exit: it runs when the module is unloaded, behind all calls"),
        ("data", None, "it has no function data of its own"),
        ("untracde", None, "it has no function untracde of its own; did you mean untraced?"),
    ],
)
def test_points_in_it(code: KernelCode, symbol: str, offset: int | None, reason: str | None) -> None:
    assert wrong_point_reason(code, symbol, offset) == reason


@pytest.mark.parametrize("content", [b"", b"no module", b"\x7fELF\x02\x01\x01" + bytes(20)])
def test_another_file_is_no_module(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.ko"
    file.write_bytes(content)
    with pytest.raises(LabError, match="the functions of a module cannot be read"):
        module_code(file)


def test_a_file_that_is_not_there_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the functions of a module cannot be read"):
        module_code(tmp_path / "mine.ko")
