# SPDX-License-Identifier: GPL-2.0-only
"""Are boots offered in their order, and those that need the same no more once one of them has to wait?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from staged_fleet import jobs_of

from orchestrator.fleet.trust import Waiting, Work

(JOB,) = jobs_of(Path("/nowhere"), 1)


def work(number: int, loser: str) -> Work:
    """A boot that is one of those that this worker has lost, or of none's."""
    task = replace(JOB.task, directory=Path(f"boot{number}"))
    return Work(replace(JOB, task=task), {}, 0, losses=[(loser, "it has gone")] if loser else [])


@given(
    losers=st.lists(st.sampled_from(["", "a", "b"]), max_size=12),
    come_back=st.integers(0, 6),
    room=st.dictionaries(st.sampled_from(["", "a", "b"]), st.integers(0, 12)),
)
def test_it_does_what_a_list_would(losers: list[str], come_back: int, room: dict[str, int]) -> None:
    works = [work(number, loser) for number, loser in enumerate(losers)]
    waiting, plain = Waiting(), works[come_back:]
    waiting.extend(works[come_back:])
    for one in works[:come_back]:
        waiting.appendleft(one)
        plain.insert(0, one)
    asked: list[bool] = []
    taken: list[str] = []

    def take(one: Work) -> bool:
        loser = one.losses[0][0] if one.losses else ""
        room[loser] = room.get(loser, 0) - 1
        asked.append(room[loser] >= 0)
        if asked[-1]:
            taken.append(one.job.name)
        return asked[-1]

    expected = {loser: max(0, number) for loser, number in room.items()}
    begun: list[str] = []
    for one in plain:
        loser = one.losses[0][0] if one.losses else ""
        if expected.get(loser, 0) > 0:
            expected[loser] -= 1
            begun.append(one.job.name)
    waiting.give(take)
    left = [one.job.name for one in plain if one.job.name not in taken]
    assert taken == begun
    assert len(asked) <= len(begun) + 3
    assert (len(waiting), sorted(left + begun)) == (len(plain) - len(begun), sorted(one.job.name for one in plain))
    again: list[str] = []

    def rest(one: Work) -> bool:
        again.append(one.job.name)
        return True

    waiting.give(rest)
    assert (again, len(waiting)) == (left, 0)
