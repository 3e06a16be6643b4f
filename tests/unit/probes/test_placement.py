# SPDX-License-Identifier: GPL-2.0-only
"""Is of each instruction known what no kernel allows, and does a guest's answer say the rest?"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from report_text import check_golden
from rich.console import Console

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.library.function_probes import Disassembly
from orchestrator.probes import placement
from orchestrator.probes.placement import FunctionPlaces, ProbePlace, Technique, answered, places_of, refusal_of
from orchestrator.report.text import print_sheets

SOURCE = Path(__file__).parent / "points" / "places.S"
CONFIG = {"CONFIG_DYNAMIC_FTRACE": "y", "CONFIG_KPROBES_ON_FTRACE": "y"}
"""Debian's."""
REFUSED = "kprobes refuse it: blacklisted, patched by the kernel itself, or not kernel text"
MODULE = Module("lab_places", Path("/places.ko"), "key", None)


def places(code: KernelCode, symbol: str, config: dict[str, str] = CONFIG) -> FunctionPlaces:
    function_places = places_of(code, config, symbol)
    assert function_places is not None
    return function_places


def at(function: FunctionPlaces, offset: int) -> ProbePlace:
    return next(place for place in function.places if place.offset == offset)


def possible(function: FunctionPlaces, means: Technique) -> dict[int, bool | None]:
    return {place.offset: place.verdicts[means].is_possible for place in function.places}


def test_the_instructions_and_what_the_image_decides(code: KernelCode) -> None:
    function = places(code, "probed")
    takes = possible(function, "kprobe")
    # Without the padding.
    assert list(takes) == [0, 5, 6, 0xB, 0xD, 0x12, 0x14, 0x16, 0x1B, 0x1C, 0x21, 0x26, 0x28]
    assert takes == {offset: None if offset else False for offset in takes}
    assert "function tracer" in (at(function, 0).verdicts["kprobe"].reason or "")
    assert possible(function, "optimised") == takes
    assert [place.offset for place in function.places if place.is_repeated] == [0x26]
    assert [place.offset for place in function.places if place.is_entry] == [0, 5]
    assert {place.step for place in function.places} == {None}
    assert places_of(code, CONFIG, "nonesuch") is None


@pytest.mark.parametrize(
    ("symbol", "word"), [("secret", "NOKPROBE"), ("secret.part.0", "NOKPROBE"), ("untraceable", "noinstr")]
)
def test_a_function_that_is_not_to_be_probed(code: KernelCode, symbol: str, word: str) -> None:
    verdicts = at(places(code, symbol), 0).verdicts
    for means in ("kprobe", "optimised", "djprobe"):
        possibility = verdicts[means]
        assert possibility.is_possible is False
        assert word in (possibility.reason or "")
    assert at(places(code, "other"), 0).verdicts["kprobe"].is_possible is None


def test_the_tracer_is_at_its_site_and_a_djprobe_at_the_entry(code: KernelCode) -> None:
    function = places(code, "probed")
    assert [offset for offset, one in possible(function, "tracer").items() if one] == [0]
    assert [offset for offset, one in possible(function, "djprobe").items() if one is None] == [5]
    assert "notrace" in (at(places(code, "other"), 0).verdicts["tracer"].reason or "")
    assert not any(possible(places(code, "probed", {}), "tracer").values())
    untraced = places(code, "probed", {**CONFIG, "CONFIG_KPROBES_ON_FTRACE": "n"})
    assert "CONFIG_KPROBES_ON_FTRACE" in (at(untraced, 0).verdicts["kprobe"].reason or "")


def test_entry_bytes_precede_a_functions_code_on_each_kernel(code: KernelCode) -> None:
    function = places(code, "tagged")
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


@pytest.mark.parametrize(
    ("kind", "offset", "word"),
    [
        ("none", 0, None),
        ("hook", 0, None),
        ("kprobe", 0, "function tracer"),
        ("kretprobe", 5, None),
        ("kretprobe", 6, "entry"),
        ("ftrace", 0, None),
        ("bpf-fentry", 5, "site is at +0x0"),
        ("djprobe", 6, "entry, at +0x5"),
        # What only a boot answers is tried.
        ("kprobe", 0xD, None),
        ("kprobe-optimized", 0x14, None),
    ],
)
def test_which_kinds_are_refused(code: KernelCode, kind: str, offset: int, word: str | None) -> None:
    found = refusal_of(probes()[kind], at(places(code, "probed"), offset))
    assert (found is None) is (word is None)
    assert (word or "") in (found or "")


class Answering:
    """A guest whose kernel answers so; the last kind of line for all others."""

    def __init__(self, lines: dict[int, str]) -> None:
        self.lines = lines

    def put(self, content: bytes, target: str) -> None:
        assert target == "/tmp/places"
        self.asked = [int(one, 16) for one in content.split()]

    def succeed(self, words: list[str], **_: object) -> SimpleNamespace:
        assert words[0] == "sh"
        start = self.asked[0]
        return SimpleNamespace(text="".join(f"{one:x};{self.lines.get(one - start, '')}\n" for one in self.asked))


ANSWERS = {
    **dict.fromkeys((5, 6, 0xB, 0x12, 0x16, 0x1B, 0x1C, 0x26, 0x28), "listed     [OPTIMIZED];single-stepped"),
    0: "listed     [FTRACE];emulated",
    0xD: "listed ;emulated",
    0x14: "listed ;emulated",
    0x21: f";{REFUSED}",
}


@pytest.fixture
def asked(code: KernelCode, monkeypatch: pytest.MonkeyPatch) -> FunctionPlaces:
    """A function with the answers of a guest."""
    for name in ("load", "unload"):
        monkeypatch.setattr(placement, name, lambda *_: None)
    return answered(cast(Guest, Answering(ANSWERS)), MODULE, places(code, "probed"))


def test_a_guest_answers_for_each_instruction(asked: FunctionPlaces) -> None:
    assert [place.offset for place in asked.places if place.step == "emulated"] == [0xD, 0x14]
    assert at(asked, 5).step == "single-stepped"
    assert (at(asked, 0x21).step, at(asked, 0x21).verdicts["kprobe"].reason) == (None, REFUSED)
    assert [offset for offset, one in possible(asked, "optimised").items() if not one] == [0, 0xD, 0x14, 0x21]
    # The image's reason is the better one.
    assert "function tracer" in (at(asked, 0).verdicts["kprobe"].reason or "")
    # Nobody has tried a djprobe.
    assert possible(asked, "djprobe")[5] is None


@pytest.mark.parametrize("text", ["", "a;b;c\n", "5\n"])
def test_an_answer_that_is_none(code: KernelCode, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load", "unload"):
        monkeypatch.setattr(placement, name, lambda *_: None)
    guest = Answering(ANSWERS)
    monkeypatch.setattr(guest, "succeed", lambda *_, **__: SimpleNamespace(text=text))
    function = places(code, "probed")
    with pytest.raises(EvidenceError, match="does not answer for each instruction"):
        answered(cast(Guest, guest), MODULE, function)


def up_to(whole: Disassembly, last: int) -> Disassembly:
    """Its first instructions."""
    places = [place for place in whole.function.places if place.offset <= last]
    return replace(whole, function=replace(whole.function, places=places), text=whole.text[: len(places)])


def test_the_instructions_as_a_table(code: KernelCode, asked: FunctionPlaces) -> None:
    disassembly = Disassembly.of("mine", "6.1.0", code, asked)
    assert [line for line in disassembly.text if "other" in line] == ["call other"]
    assert [line for line in disassembly.text if line.startswith("j")] == ["je +0x1b"]
    assert len(disassembly.printed().model_dump(mode="json")["instructions"]) == len(asked.places)
    kinds = {one["offset"]: one["kinds"] for one in disassembly.printed().model_dump(mode="json")["instructions"]}
    assert [offset for offset, names in kinds.items() if "jprobe" in names] == [5]
    assert "kprobe-optimized" in kinds[0x26]
    assert "kprobe-optimized" not in kinds[0xD]
    assert "kprobe-ftrace" in kinds[0]
    assert not {"kprobe", "none", "uprobe-event"} & set(kinds[0])
    assert {"kprobe", "kprobe-boosted"} & set(kinds[0xD]) == {"kprobe-boosted"}
    legend = next(sentence for sentence in disassembly.sheet().sentences if sentence.startswith("kprobe: "))
    assert legend == (
        "kprobe: kprobe, kprobe-plain, kprobe-boosted, kprobe-fallback; "
        "only at the function's entry kretprobe, kretprobe-boosted, jprobe."
    )
    note = next(
        one
        for one in disassembly.printed().model_dump(mode="json")["notes"]
        if one.startswith("emulated: the kernel takes a kprobe there")
    )
    assert f"Note: {note}." in disassembly.sheet().sentences
    assert "emulated" not in "".join(up_to(disassembly, 6).printed().model_dump(mode="json")["notes"])
    unasked = Disassembly.of("mine", "6.1.0", code, places(code, "probed"))
    assert unasked.printed().model_dump(mode="json")["notes"] == ["No guest was asked: ? is not known before a boot."]
    assert unasked.printed().model_dump(mode="json")["instructions"][1]["probes"]["kprobe"]["possible"] is None
    if code.word == 4:
        return
    console = Console(width=120, file=StringIO())
    sheets = [up_to(disassembly, 0x12).sheet(), up_to(unasked, 0x6).sheet()]
    # The other sentences have all kinds of the catalogue.
    print_sheets([replace(sheet, sentences=sheet.sentences[:1]) for sheet in sheets], console)
    assert isinstance(console.file, StringIO)
    check_golden("disassembly.txt", console.file.getvalue())
