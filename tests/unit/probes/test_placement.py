# SPDX-License-Identifier: GPL-2.0-only
"""Is it known of each instruction which probes it can have, and why it cannot have the others?"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from built_code import build_tree
from rich.console import Console

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.artifacts.kernel_tables import unprobed_functions
from orchestrator.catalog.probes import probes
from orchestrator.probes.placement import FunctionPlaces, Means, ProbePlace, function_places, refusal_of
from orchestrator.profile.probe_places import Disassembly
from orchestrator.report.text import print_sheets

SOURCE = Path(__file__).parent / "points" / "places.S"
GOLDEN = Path(__file__).parent.parent / "golden" / "disassembly.txt"
TRACED = {"CONFIG_DYNAMIC_FTRACE": "y", "CONFIG_KPROBES_ON_FTRACE": "y"}
CONFIG = {**TRACED, "CONFIG_OPTPROBES": "y", "CONFIG_PREEMPTION": "y"}
"""Debian's."""
BOOSTING = {"CONFIG_OPTPROBES": "y"}


@pytest.fixture(scope="module", params=[4, 8])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KernelCode:
    """The image of a kernel with some functions, and the tables that tell of them."""
    found = code_of_tree(build_tree(tmp_path_factory.mktemp("tree"), SOURCE, request.param))
    assert found is not None
    return found


def at(function: FunctionPlaces, offset: int) -> ProbePlace:
    return next(one for one in function.places if one.offset == offset)


def possible(function: FunctionPlaces, means: Means) -> dict[int, bool | None]:
    return {one.offset: one.verdicts[means].is_possible for one in function.places}


def test_where_a_kprobe_can_be(code: KernelCode) -> None:
    function = function_places(code, CONFIG, "probed")
    takes = possible(function, "kprobe")
    # Without the padding.
    assert list(takes) == [0, 5, 6, 0xB, 0xD, 0x12, 0x14, 0x16, 0x1B, 0x1C, 0x21, 0x26, 0x2B, 0x2E, 0x30, 0x31]
    assert [offset for offset, one in takes.items() if one is False] == [0, 0x21, 0x2E]
    assert [offset for offset, one in takes.items() if one is None] == [0x2B]
    reasons = [at(function, offset).verdicts["kprobe"].reason or "" for offset in (0, 0x21, 0x2E, 0x2B)]
    for reason, word in zip(reasons, ("function tracer", "static branch", "BUG()", "boots"), strict=True):
        assert word in reason
    assert function.notes == []


def test_how_the_kernel_goes_on_behind_a_kprobe(code: KernelCode) -> None:
    offsets = (5, 0xD, 0x14, 0x12, 0x30)
    steps = [at(function_places(code, CONFIG, "probed"), offset).step for offset in offsets]
    assert steps == ["single-stepped", "emulated", "emulated", "single-stepped", "emulated"]
    # A kernel that is not preemptible boosts what it can, an instruction that it could emulate as well.
    steps = [at(function_places(code, BOOSTING, "probed"), offset).step for offset in offsets]
    assert steps == ["boosted", "emulated", "emulated", "boosted", "boosted"]


@pytest.mark.parametrize(
    ("offset", "is_possible", "reason"),
    [
        (5, True, None),
        (6, True, None),
        (0xB, False, "the jump would cover +0xd, which kprobes do not boost"),
        (0x16, False, "the jump at +0x14 leads to +0x1b"),
        (0x1B, True, None),
        (0x1C, True, None),
        (0x21, False, "it is a static branch, which the kernel itself switches"),
        (0x26, None, "the jump at +0x21 leads to +0x2b, if the kernel switches it so"),
        (0x2B, False, "the jump would cover +0x2e, which kprobes do not boost"),
        (0x30, False, "the jump would cover +0x32, which kprobes do not boost"),
    ],
)
def test_where_a_kprobe_can_be_optimised(
    code: KernelCode, offset: int, is_possible: bool | None, reason: str | None
) -> None:
    found = at(function_places(code, CONFIG, "probed"), offset).verdicts["optimised"]
    assert (found.is_possible, found.reason) == (is_possible, reason)


@pytest.mark.parametrize(
    ("symbol", "optimised", "djprobe"),
    [
        ("other", None, None),
        ("short", "a jump takes five bytes", "a jump takes five bytes"),
        ("faulting", "may fault", "may fault"),
        ("jumping", "indirect jump", "indirect jump"),
        ("secret", "NOKPROBE_SYMBOL", "NOKPROBE_SYMBOL"),
        ("secret.part.0", "NOKPROBE_SYMBOL", "NOKPROBE_SYMBOL"),
        ("untraceable", "noinstr", "noinstr"),
    ],
)
def test_what_keeps_a_jump_out_of_a_function(
    code: KernelCode, symbol: str, optimised: str | None, djprobe: str | None
) -> None:
    verdicts = at(function_places(code, CONFIG, symbol), 0).verdicts
    for means, expected in (("optimised", optimised), ("djprobe", djprobe)):
        found = verdicts[means]  # type: ignore[index]
        assert found.is_possible is (expected is None)
        assert (expected or "") in (found.reason or "")


def test_the_functions_that_are_not_to_be_probed_are_found_without_their_symbols(code: KernelCode) -> None:
    found = unprobed_functions(code) or frozenset()
    # Neither the function tracer's list before nor that of errors to inject behind.
    assert {name for one in found for name in code.names_at(one)} >= {"kprobe_int3_handler", "secret"}
    assert not {name for one in found for name in code.names_at(one)} & {"probed", "other", "short"}


def test_the_tracer_is_at_its_site_and_a_djprobe_at_the_entry(code: KernelCode) -> None:
    function = function_places(code, CONFIG, "probed")
    assert [offset for offset, one in possible(function, "tracer").items() if one] == [0]
    assert [offset for offset, one in possible(function, "djprobe").items() if one] == [5]
    other = function_places(code, CONFIG, "other")
    assert "notrace" in (at(other, 0).verdicts["tracer"].reason or "")
    assert not any(possible(function_places(code, BOOSTING, "probed"), "tracer").values())


@pytest.mark.parametrize("version", ["6.1", "6.12", "6.18", ""])
def test_what_is_in_front_of_a_function_is_so_on_each_kernel(code: KernelCode, version: str) -> None:
    function = function_places(code, CONFIG, "tagged", version)
    reasons = {
        (kind, offset): refusal_of(probes()[kind], at(function, offset)) or ""
        for kind in ("kprobe", "kprobe-optimized", "kprobe-ftrace", "ftrace-direct", "djprobe")
        for offset in (0, 4, 9)
    }
    for kind in ("kprobe", "kprobe-optimized"):
        assert reasons[kind, 0] == "kprobes step over the endbr: one at +0x0 goes to +0x4"
        assert reasons[kind, 4].startswith("it is the function tracer's")
    for kind in ("kprobe-ftrace", "ftrace-direct"):
        expected = "the function tracer's site is at +0x4"
        assert [reasons[kind, offset] for offset in (0, 4, 9)] == [expected, "", expected]
    for offset in (0, 4):
        assert reasons["djprobe", offset] == "a djprobe is at the function's entry, at +0x9"
    assert reasons["kprobe", 9] == ""


def test_what_follows_from_the_rules_alone_is_left_to_a_kernel_that_may_have_others(code: KernelCode) -> None:
    known, other = (function_places(code, CONFIG, "probed", version) for version in ("6.12", ""))
    for means in ("kprobe", "boosted", "optimised"):
        says = possible(other, means)
        assert says[0] is False
        assert [offset for offset, one in says.items() if one is False] == [0]
        for offset, is_possible in possible(known, means).items():
            assert says[offset] is (None if is_possible is False and offset else is_possible)
    reason = at(other, 0x21).verdicts["kprobe"].reason
    assert reason == (
        "by the rules of Linux 6.1 and 6.12 none can be there: it is a static branch, which the kernel itself switches"
    )
    # Whether a kprobe is emulated is a rule as well.
    assert refusal_of(probes()["kprobe"], at(known, 0xD)) is not None
    assert refusal_of(probes()["kprobe"], at(other, 0xD)) is None


@pytest.mark.parametrize(
    ("version", "means", "expected"),
    [
        ("6.1", "boosted", [True, False, False, False, False, True, False, False, False]),
        ("6.12", "boosted", [True, True, False, True, False, True, True, False, False]),
        ("6.1", "kprobe", [True] * 7 + [True, True]),
        ("6.12", "kprobe", [True] * 7 + [False, False]),
    ],
)
def test_what_linux_6_9_has_changed(code: KernelCode, version: str, means: Means, expected: list[bool]) -> None:
    """Groups of opcodes are boosted by their extension; what raises an exception is refused."""
    function = function_places(code, BOOSTING, "grouped", version)
    assert list(possible(function, means).values())[:-1] == expected


def test_what_a_kernel_was_built_without(code: KernelCode) -> None:
    without = at(function_places(code, {**TRACED, "CONFIG_PREEMPTION": "y"}, "probed"), 5)
    assert without.verdicts["optimised"].reason == "this kernel was built without CONFIG_OPTPROBES"
    untraced = function_places(code, {**CONFIG, "CONFIG_KPROBES_ON_FTRACE": "n"}, "probed")
    assert "CONFIG_KPROBES_ON_FTRACE" in (at(untraced, 0).verdicts["kprobe"].reason or "")


@pytest.mark.parametrize(
    ("kind", "offset", "word"),
    [
        ("none", 0, None),
        ("hook", 0, None),
        ("kprobe", 5, None),
        ("kprobe", 0, "function tracer"),
        ("kprobe", 0xD, "emulate"),
        ("kprobe-boosted", 0xD, "another address"),
        ("kprobe-detour", 0xB, "cover +0xd"),
        # It is a kprobe that the kernel would optimise but for its post-handler.
        ("kprobe-fallback", 0xB, "cover +0xd"),
        ("kprobe-fallback", 0x26, None),
        ("kretprobe", 5, None),
        ("kretprobe", 6, "entry"),
        ("ftrace", 0, None),
        ("bpf-fentry", 5, "site is at +0x0"),
        ("djprobe", 6, "entry, at +0x5"),
        # What only the boot decides is tried.
        ("kprobe-optimized", 0x26, None),
        ("kprobe", 0x2B, None),
    ],
)
def test_which_kinds_are_refused(code: KernelCode, kind: str, offset: int, word: str | None) -> None:
    found = refusal_of(probes()[kind], at(function_places(code, CONFIG, "probed"), offset))
    assert (found is None) is (word is None)
    assert (word or "") in (found or "")


def test_the_instructions_as_a_table(code: KernelCode) -> None:
    function = function_places(code, CONFIG, "probed")
    found = Disassembly.of("mine", "6.1.0", code, function)
    assert [line for line in found.text if "other" in line] == ["call other"]
    assert [line for line in found.text if line.startswith("j")] == ["je +0x1b"]
    assert [one.offset for one in found.part(5, 0xB).function.places] == [5, 6, 0xB]
    assert len(found.json().instructions) == len(function.places)
    kinds = {one.offset: one.kinds for one in found.json().instructions}
    assert [offset for offset, names in kinds.items() if "jprobe" in names] == [5]
    assert "kprobe-optimized" in kinds[0x26]
    assert "kprobe-ftrace" in kinds[0]
    assert not {"kprobe", "none", "uprobe-event"} & set(kinds[0])
    legend = next(one for one in found.sheet().sentences if one.startswith("kprobe: "))
    assert legend == (
        "kprobe: kprobe, kprobe-plain; only where one can be optimised kprobe-fallback; "
        "only at the function's entry kretprobe, jprobe; none where it is emulated."
    )
    note = next(one for one in found.json().notes if one.startswith("emulated: the kernel takes a kprobe there"))
    assert f"Note: {note}." in found.sheet().sentences
    assert "emulated" not in "".join(found.part(5, 6).json().notes)
    if code.word == 4:
        return
    console = Console(width=120, file=StringIO())
    sheet = found.part(0, 0x12).sheet()
    # The other sentences have all kinds of the catalogue.
    print_sheets([replace(sheet, sentences=sheet.sentences[:1])], console)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == GOLDEN.read_text(encoding="utf-8")
