# SPDX-License-Identifier: GPL-2.0-only
"""The boots that wait for a worker, in their order; those that the same workers can do are asked for once.

With 20,000 boots, and a worker that is free and has the memory for none of them, each event would else ask for all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from orchestrator.fleet.attempts import Work

_Need = tuple[int, bool, frozenset[str]]
"""What decides on which workers can do a boot: its memory, whether it is timed, and who has lost it."""


class Waiting:
    """Boots in the plan's order, and in front of them those that came back."""

    def __init__(self) -> None:
        self._queues: defaultdict[_Need, deque[tuple[int, Work]]] = defaultdict(deque)
        self._jobs: set[str] = set()
        self._first = self._next = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, work: Work) -> bool:
        return work.job.name in self._jobs

    def extend(self, works: Iterable[Work]) -> None:
        """Boots that wait behind all others."""
        for work in works:
            self._queues[_need(work)].append((self._next, work))
            self._jobs.add(work.job.name)
            self._next += 1

    def appendleft(self, work: Work) -> None:
        """One that waits before all others."""
        self._first -= 1
        self._queues[_need(work)].appendleft((self._first, work))
        self._jobs.add(work.job.name)

    def give(self, take: Callable[[Work], bool]) -> None:
        """Offer boots in their order, each until ``take`` says that it waits on; so do those that need the same then.

        A boot that is taken waits no more. ``take`` adds none.
        """
        queues = {need: queue for need, queue in self._queues.items() if queue}
        while queues:
            need, queue = min(queues.items(), key=lambda one: one[1][0][0])
            _, work = queue[0]
            if not take(work):
                del queues[need]
                continue
            queue.popleft()
            self._jobs.remove(work.job.name)
            if not queue:
                del queues[need], self._queues[need]


def _need(work: Work) -> _Need:
    return work.memory_mib, work.is_timed, frozenset(name for name, _ in work.losses)
