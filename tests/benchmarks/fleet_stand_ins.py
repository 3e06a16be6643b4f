# SPDX-License-Identifier: GPL-2.0-only
"""Many workers of a fleet in one process, whose guests are stand-ins: their boots take as long as they are told to.

Everything else is real: Dask's workers, TLS, messages, files. Called with the scheduler's address, the key's file, the
first worker's number, and how many of them there are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.fleet.key import read_key, security_of
from orchestrator.fleet.messages import BEGINS, sent
from orchestrator.fleet.target import set_up_dask
from orchestrator.fleet.transfer import unbundled
from orchestrator.fleet.worker import Boots, FleetWorker, Send
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BenchmarkKind, BootTask
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted, Progress


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A boot as it went: seconds until its guest was ready, then for each cell, with what was reported."""

    ready: float
    booted: GuestBooted
    cells: tuple[tuple[float, CellRecord], ...]

    def stretched(self, factor: float) -> Recorded:
        """The same, taking so many times as long."""
        cells = tuple((factor * seconds, record) for seconds, record in self.cells)
        return dataclasses.replace(self, ready=factor * self.ready, cells=cells)

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.ready + sum(seconds for seconds, _ in self.cells)


class RecordedKind(BenchmarkKind):
    """A kind whose boots were measured before: it carries what they reported to the stand-ins."""

    name = "recorded"

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    def benchmarks(self) -> Any:
        raise NotImplementedError

    def cells(self, name: str | None, table: Any) -> Any:
        raise NotImplementedError

    def describe(self, cell: Any) -> str:
        raise NotImplementedError

    def prepare(self, context: BuildContext, kernel: Any, cells: Any) -> Any:
        raise NotImplementedError

    def measure(self, session: Any, cells: Any) -> Any:
        raise NotImplementedError


class StandIns(Boots):
    """Boots that start no guest."""

    def do(self, attempt: str, data: bytes, send: Send) -> None:
        """Report what was recorded, in the time that it took."""
        task, _ = unbundled(data, self.store.place)
        assert isinstance(task, BootTask)
        recorded = task.kind.recorded if isinstance(task.kind, RecordedKind) else None

        def tell(event: Event) -> None:
            send(sent(attempt, event))

        tell(Progress(BEGINS))
        if recorded is not None:
            time.sleep(recorded.ready)
            tell(recorded.booted)
            wanted = {cell.id for cell in task.cells}  # one cell alone, where it is measured again
            for seconds, record in recorded.cells:
                if record.id in wanted:
                    tell(CellBegan(record.id))
                    time.sleep(seconds)
                    tell(CellRecorded(record, is_compared=True))


async def serve(address: str, key: str, first: int, count: int) -> None:
    """Be so many workers until the scheduler ends."""
    set_up_dask()
    workers = [
        FleetWorker(
            address,
            StandIns(cache_dir()),
            (1, 4096),
            nthreads=2,
            name=f"w-{number}",
            host="127.0.0.1",
            security=security_of(key),
            memory_limit=0,
        )
        for number in range(first, first + count)
    ]
    for worker in workers:
        await worker
    await asyncio.gather(*(worker.finished() for worker in workers))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    import fleet_stand_ins  # what is unpickled is of the module of this name

    asyncio.run(fleet_stand_ins.serve(sys.argv[1], read_key(Path(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])))
