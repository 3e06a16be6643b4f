# SPDX-License-Identifier: GPL-2.0-only
"""Does the picture of a difference show what is more in red, what is less in blue, and all of both sides?"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from stored_profiles import stacked

from orchestrator.report.flames import difference_flame_graph

BEFORE = {"callbench": 20, "callbench;entry": 100, "callbench;entry;less": 50, "callbench;entry;gone": 30}
AFTER = {"callbench": 20, "callbench;entry": 100, "callbench;entry;less": 40, "callbench;entry;new": 240}


@dataclass(frozen=True)
class Box:
    title: str
    left: float
    top: float
    width: float
    colour: tuple[int, int, int]

    @property
    def is_red(self) -> bool:
        return self.colour[0] > self.colour[2]

    @property
    def is_blue(self) -> bool:
        return self.colour[2] > self.colour[0]


def boxes(text: str) -> list[tuple[str, Box]]:
    found = []
    for group in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}g"):
        title, rectangle = group[0].text or "", group[1]
        left, top, width = (float(rectangle.get(key, "nan")) for key in ("x", "y", "width"))
        colour = bytes.fromhex(rectangle.get("fill", "").removeprefix("#"))
        found.append((title.partition(":")[0], Box(title, left, top, width, (colour[0], colour[1], colour[2]))))
    return found


def heaps() -> tuple[dict[str, Box], dict[str, Box]]:
    """The boxes above and those below."""
    found = boxes(difference_flame_graph(stacked("a/none", BEFORE), stacked("a/kprobe", AFTER)))
    bottoms = [index for index, (name, _) in enumerate(found) if name == "callbench"]
    assert bottoms[0] == 0
    return dict(found[: bottoms[1]]), dict(found[bottoms[1] :])


def test_each_side_has_its_boxes_at_one_scale() -> None:
    after, before = heaps()
    assert {"new"} == set(after) - set(before)
    assert {"gone"} == set(before) - set(after)
    assert after["callbench"].width == 1200
    assert before["callbench"].width == pytest.approx(1200 * 200 / 400)
    assert after["less"].width == pytest.approx(1200 * 40 / 400)
    assert before["less"].width == pytest.approx(1200 * 50 / 400)
    assert max(box.top for box in after.values()) < min(box.top for box in before.values())


def test_colours_are_of_a_function_s_own_change() -> None:
    after, before = heaps()
    assert after["new"].is_red
    assert before["gone"].is_blue
    assert after["less"].is_blue
    assert after["less"].colour == before["less"].colour
    assert not after["entry"].is_red
    assert not after["entry"].is_blue
    red, pale = after["new"].colour, after["less"].colour
    assert max(red) - min(red) > max(pale) - min(pale)


def test_titles_have_the_figures() -> None:
    after, before = heaps()
    assert after["new"].title == "new: - -> 240 instructions per call (+240), own +240"
    assert before["entry"].title == "entry: 180 -> 380 instructions per call (+200), own 0"


def test_equal_profiles_are_grey() -> None:
    found = boxes(difference_flame_graph(stacked("a/b", BEFORE), stacked("a/b", BEFORE)))
    assert len({box.colour for _, box in found}) == 1


def test_the_picture_stands_alone_and_names_from_a_guest_are_no_markup() -> None:
    text = difference_flame_graph(stacked("a/b", {"<script>": 1}), stacked("a/b", {'"&': 1}))
    assert "<script" not in text
    assert "href" not in text
    assert ElementTree.fromstring(text) is not None
