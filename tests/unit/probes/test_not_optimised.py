# SPDX-License-Identifier: GPL-2.0-only
"""Is it said why the kernel has put no jump in place of an int3, by what a guest and the kernel's image show?"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from built_code import build_tree

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.probes.placement import why_not_optimised
from orchestrator.probes.point import ProbePoint

SOURCE = Path(__file__).parent / "points" / "places.S"
CONFIG = {"CONFIG_OPTPROBES": "y"}
NOTHING = "neither the kernel's image nor its list of probes shows a reason"


class Settled:
    """A guest with this switch and these kprobes."""

    def __init__(self, switch: str = "1", listing: str = "") -> None:
        self.switch, self.listing = switch, listing

    def get(self, source: str, **_: object) -> bytes:
        return (self.listing if source == KPROBES_LIST else f"{self.switch}\n").encode()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> KernelCode:
    found = code_of_tree(build_tree(tmp_path_factory.mktemp("tree"), SOURCE, 4))
    assert found is not None
    return found


def point(code: KernelCode, offset: int, module: str | None = None) -> ProbePoint:
    start = code.function("probed")
    assert start is not None
    return ProbePoint("probed", offset, start + offset, bytes(16), module=module)


def why(guest: Settled, code: KernelCode | None, at: ProbePoint) -> str:
    return why_not_optimised(cast(Guest, guest), code, CONFIG, at)


def test_the_switch_comes_first(code: KernelCode) -> None:
    assert why(Settled("0"), code, point(code, 5)).endswith("/proc/sys/debug/kprobes-optimization is 0")


@pytest.mark.parametrize(("behind", "is_near"), [(-1, False), (0, False), (1, True), (4, True), (5, False)])
def test_another_kprobe_under_the_jump(code: KernelCode, behind: int, is_near: bool) -> None:
    at = point(code, 0x12)
    said = why(Settled(listing=f"{at.address + behind:08x}  k  another+0x1    [DISABLED]\n"), None, at)
    assert said == ("another kprobe is under the jump, at another+0x1" if is_near else NOTHING)


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0x5, NOTHING),
        (0x12, "the jump would cover +0x14, which kprobes do not boost"),
        (0x16, "the jump at +0x14 leads to +0x1b"),
        (0x26, "the jump at +0x21 leads to +0x2b, if the kernel switches it so"),
    ],
)
def test_what_the_image_says(code: KernelCode, offset: int, said: str) -> None:
    assert why(Settled(), code, point(code, offset)) == said


def test_without_an_image_and_in_a_module_nothing_is_known(code: KernelCode) -> None:
    assert why(Settled(), code, point(code, 0x12, module="mine")) == NOTHING
    assert why(Settled(), None, point(code, 0x12)) == NOTHING
