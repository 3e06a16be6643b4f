# SPDX-License-Identifier: GPL-2.0-only
"""From where can a probed function have been called, by the return address that a recorded event has?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.point_check import wrong_point_reason
from orchestrator.probes.symbols import Symbols

LISTING = b"""\
c1000000 T _stext
c1000040 T mutex_lock_killable
c1000800 T _etext
c1800000 D data
d0846050 t loop_control_ioctl\t[loop]
d0950000 t vp_notify\t[virtio_pci]
"""


SYMBOLS = Symbols(LISTING, frozenset({"loop"}))


IN_TEXT, BEHIND_TEXT, LOADED, OTHER = 0xC1000100, 0xC1800010, 0xD0846080, 0xD0950010


@pytest.mark.parametrize(("module", "callers"), [(None, {IN_TEXT, LOADED}), ("loop", {IN_TEXT, LOADED, OTHER})])
def test_callers_of_a_function(module: str | None, callers: set[int]) -> None:
    """What the experiment has loaded may call the kernel: a workload with its modules is probed anywhere."""
    point = ProbePoint("mutex_lock_killable", 0, 0xC1000040, b"", module=module)
    assert {one for one in (IN_TEXT, BEHIND_TEXT, LOADED, OTHER, 0) if point.is_callers(one, SYMBOLS)} == callers


def test_without_modules_only_the_kernel_s_text_calls_it() -> None:
    point = ProbePoint("mutex_lock_killable", 0, 0xC1000040, b"")
    plain = Symbols(LISTING)
    assert [one for one in (IN_TEXT, BEHIND_TEXT, LOADED, OTHER) if point.is_callers(one, plain)] == [IN_TEXT]


# Is a wrong probe point found in a kernel's image, with what is right instead, and a right one never refused?

SOURCE = Path(__file__).parent / "points" / "points.S"


@pytest.mark.parametrize(
    ("symbol", "offset"),
    [
        ("vfs_write", None),
        ("vfs_write", 0),
        *(("vfs_read", offset) for offset in (0, 1, 6, 9)),
        ("vfs_read", 7),  # in code that is replaced as the kernel boots: the guest decides
    ],
)
def test_nothing_is_wrong(code: KernelCode, symbol: str, offset: int | None) -> None:
    assert wrong_point_reason(code, symbol, offset) is None


@pytest.mark.parametrize(
    ("symbol", "offset", "reason"),
    [
        ("vfs_raed", None, "it has no function vfs_raed of its own; did you mean vfs_read or vfs_write?"),
        ("vfs_raed", 1, "it has no function vfs_raed of its own; did you mean vfs_read or vfs_write?"),
        ("frobnicate", None, "it has no function frobnicate of its own"),
        ("jiffies", None, "jiffies is data, not a function"),
        ("_etext", None, "_etext is not a function: it is outside of the kernel's text"),
        ("late_end", None, "late_end is __exit: the kernel drops it as it boots"),
        ("__pfx_spaced", None, "__pfx_spaced has no instruction: its 0x2 bytes are padding before spaced"),
        ("__pfx_spaced", 1, "__pfx_spaced has no instruction: its 0x2 bytes are padding before spaced"),
        ("early_setup", None, "early_setup is __init: its memory is freed when the kernel has booted"),
        (
            "vfs_read",
            3,
            "vfs_read+0x3 is inside the instruction at +0x1 (5 bytes): instructions begin at +0x0, +0x1, +0x6",
        ),
        ("vfs_read", 0xD, "vfs_read+0xd is beyond the end of vfs_read, which has 0xd bytes"),
        (
            "vfs_read",
            0xA,
            "vfs_read+0xa is beyond the end of vfs_read: behind its last instruction, at +0x9, is padding",
        ),
    ],
)
def test_wrong_points_are_refused(code: KernelCode, symbol: str, offset: int | None, reason: str) -> None:
    assert wrong_point_reason(code, symbol, offset) == reason


def test_static_functions_of_one_name(code: KernelCode) -> None:
    other_symbol = next(symbol for symbol in code.symbols if symbol.name == "vfs_write")
    twice = [*code.symbols, dataclasses.replace(other_symbol, name="vfs_read", type="t")]
    reason = wrong_point_reason(dataclasses.replace(code, symbols=twice), "vfs_read", None)
    assert reason is not None
    assert reason.startswith("it has 2 functions vfs_read (0x")
    # Data of the same name is no second function.
    data = [*code.symbols, dataclasses.replace(other_symbol, name="vfs_read", type="d")]
    assert wrong_point_reason(dataclasses.replace(code, symbols=data), "vfs_read", None) is None


def test_code_that_is_none_is_left_to_the_guest(code: KernelCode) -> None:
    start = code.function("vfs_read")
    assert start is not None
    place = code.image.index(code.read(start, 8))
    undecodable = code.image[: place + 1] + b"\x0f\xff\xff\xff\xff" + code.image[place + 6 :]
    changed = dataclasses.replace(code, image=undecodable)
    assert wrong_point_reason(changed, "vfs_read", 9) is None
    assert wrong_point_reason(dataclasses.replace(code, segments=()), "vfs_read", 3) is None
