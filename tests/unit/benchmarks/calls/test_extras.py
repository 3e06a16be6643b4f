# SPDX-License-Identifier: GPL-2.0-only
"""Is what a hit passes besides its handler told apart, by what a call costs once each is taken off?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from orchestrator.benchmarks.calls.measurement import extra_notes, extra_sizes, removal_notes, remove_extras
from orchestrator.catalog.probes import Extra
from orchestrator.errors import EvidenceError
from orchestrator.probes.attachment import Attachment


class Registered:
    """A kprobe whose hits pass some extras."""

    def __init__(self, *extras: Extra) -> None:
        self._left = list(extras)

    def extras(self) -> Sequence[Extra]:
        return list(self._left)

    def take_off(self, extra: Extra) -> None:
        self._left.remove(extra)


def sizes(extras: Sequence[Extra], value: float, rests: Iterator[Sequence[float]], hits: int = 1) -> dict[Extra, float]:
    registered = cast("Attachment", Registered(*extras))
    return dict(extra_sizes(registered, value, lambda: next(rests), hits))


def test_each_extra_is_what_a_call_costs_less_without_it() -> None:
    rests = iter([(849.0, 849.0), (813.0, 813.0)])
    assert sizes(("post_handler", "aggregator"), 889.0, rests) == {"post_handler": 40.0, "aggregator": 36.0}


def test_a_size_is_of_one_hit() -> None:
    assert sizes(("aggregator",), 1000.0, iter([(928.0, 928.0)]), hits=2) == {"aggregator": 36.0}


def test_what_costs_nothing_is_left_out() -> None:
    rests = iter([(1661.0, 1661.0), (1630.0, 1630.0)])
    assert sizes(("post_handler", "aggregator"), 1661.0, rests) == {"aggregator": 31.0}


@pytest.mark.parametrize("rest", [(849.0, 850.0), (890.0, 890.0)])
def test_samples_that_cannot_be_are_no_size(rest: Sequence[float]) -> None:
    with pytest.raises(EvidenceError, match=r"^a call costs 889 instructions, and without its aggregator 8[0-9 or]+"):
        sizes(("aggregator",), 889.0, iter([rest]))


def test_a_plain_kprobe_is_rid_of_all() -> None:
    registered = Registered("post_handler", "aggregator")
    removed = remove_extras(cast("Attachment", registered))
    assert list(removed) == ["post_handler", "aggregator"]
    assert registered.extras() == []
    assert len(list(removal_notes(removed))) == 2


def test_a_note_has_the_size_or_says_where_to_get_it() -> None:
    both: tuple[Extra, Extra] = ("post_handler", "aggregator")
    assert [note[:33] for note in extra_notes(both, {"aggregator": 31.0})] == ["31 instructions of a hit are the "]
    assert len(list(extra_notes(both, {"aggregator": 36.0, "post_handler": 40.0}))) == 2
    unmeasured = list(extra_notes(both, None))
    assert len(unmeasured) == 2
    assert all(note.endswith("clock 'instructions' measures what that costs") for note in unmeasured)
    assert list(extra_notes((), None)) == []
