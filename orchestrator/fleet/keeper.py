# SPDX-License-Identifier: GPL-2.0-only
"""The process that keeps a fleet when ``fleet up`` has ended: the scheduler, this machine's workers, the others' hosts.

Scheduler and nannies share its process, which saves 45 MB for each. When it is killed its workers see their pipe's end
and exit, their guests die with them, and other hosts' workers see their input's end.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrator.files import ScratchFolder
from orchestrator.fleet.local import KeptLog, told
from orchestrator.fleet.state import (
    STAY,
    WORKER_FOLDER,
    FleetState,
    Orders,
    Report,
    WorkerOrder,
    log_file,
    process_start,
    state_file,
)
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.fleet.hosts import HostWorker
    from orchestrator.fleet.scheduler import FleetScheduler

_POLL = 0.2
_PAUSE = 2.0
"""Seconds before another worker takes the place of one that has ended."""


def main() -> int:
    """Keep the fleet that a line on standard input orders, and report on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: SIGTERM ends a fleet
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    orders = Orders.of_line(sys.stdin.buffer.readline())
    log = KeptLog(log_file(orders.name))
    reports = os.dup(1)
    for number in (1, 2):
        os.dup2(log.descriptor, number)

    def tell(report: Report) -> None:
        with suppress(OSError):  # nobody listens any more
            os.write(reports, report.line())

    # Opened once more: workers have the log itself, and one may outlive us for a moment.
    alone = os.open(log.file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = f"`{PROGRAM} fleet status {orders.name}` shows it"
        tell(Report("refused", text=f"fleet '{orders.name}' is being kept by another process already", hint=hint))
        return 1
    log.empty()
    with ScratchFolder(WORKER_FOLDER) as folder:  # the scheduler would make one that nobody removes
        os.environ["DASK_TEMPORARY_DIRECTORY"] = str(folder)
        return asyncio.run(Keeper(orders, log, tell).keep())


class Keeper:
    """A fleet, and what was ordered for it."""

    def __init__(self, orders: Orders, log: KeptLog, tell: Callable[[Report], None]) -> None:
        self._orders, self._log, self._tell = orders, log, tell
        self._stop = asyncio.Event()
        self._hosts: list[HostWorker] = []

    async def keep(self) -> int:
        """Keep it until we are told to stop; the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        scheduler = await self._scheduler()
        if scheduler is None:
            return 1
        orders = self._orders
        started = process_start(os.getpid())
        assert started is not None
        names = tuple(order.name for order in orders.workers)
        FleetState(orders.name, scheduler.address, orders.key_file, os.getpid(), started, names).write()
        try:
            self._tell(Report("listening", text=scheduler.address))
            threading.Thread(target=self._await_permission, args=(loop,), daemon=True).start()
            settled = [asyncio.Event() for _ in orders.workers]
            tasks = [
                asyncio.create_task(self._worker(order, scheduler, event))
                for order, event in zip(orders.workers, settled, strict=True)
            ]
            tending = asyncio.create_task(self._log.tend())
            ready = asyncio.create_task(self._announce(settled))
            await self._stop.wait()
            ready.cancel()
            tending.cancel()
            for host in self._hosts:
                host.stop()
            await asyncio.gather(*tasks, return_exceptions=True)
            await scheduler.close()
        finally:
            state_file(orders.name).unlink(missing_ok=True)
        return 0

    async def _scheduler(self) -> FleetScheduler | None:
        from orchestrator.fleet.keys import security_of
        from orchestrator.fleet.target import set_up_dask

        set_up_dask()
        from orchestrator.fleet.scheduler import started_scheduler

        orders = self._orders
        try:
            return await started_scheduler(orders.host, orders.port, security_of(orders.key))
        except (OSError, RuntimeError) as error:
            # Dask raises a RuntimeError because of the one that says why.
            cause = error.__cause__ or error
            if not isinstance(cause, OSError):
                raise
            self._tell(_refusal(orders, cause))
            return None

    def _await_permission(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: end with the command that has started us, unless it lets us stay."""
        # Not through sys.stdin: a thread that waits in there makes Python abort at its end.
        if os.read(0, len(STAY)) != STAY:
            loop.call_soon_threadsafe(self._stop.set)

    async def _announce(self, settled: list[asyncio.Event]) -> None:
        for event in settled:
            await event.wait()
        self._tell(Report("ready"))

    async def _worker(self, order: WorkerOrder, scheduler: FleetScheduler, settled: asyncio.Event) -> None:
        try:
            await (self._on_host if order.ssh else self._here)(order, scheduler, settled)
        except Exception as error:  # whatever Dask makes of a worker that does not come
            text = str(error).strip() or type(error).__name__
            self._tell(Report("failed", order.name, text.splitlines()[-1], tuple(told(self._log.file))))
        finally:
            settled.set()

    async def _here(self, order: WorkerOrder, scheduler: FleetScheduler, settled: asyncio.Event) -> None:
        """Keep a worker on this machine until we are told to stop.

        Its nanny replaces one that dies, and ends with one that closes, as Dask has a worker do that the scheduler has
        given up: on a busy host one that has said nothing for some seconds. Then there is another one, with its nanny.
        """
        from orchestrator.fleet.serve import served_worker
        from orchestrator.fleet.state import Room

        assert order.guests is not None
        assert order.memory_mib is not None
        room = Room(order.guests, order.memory_mib)
        while not self._stop.is_set():
            try:
                async with served_worker(
                    scheduler.address, self._orders.key, order.name, room, self._orders.host
                ) as nanny:
                    if not settled.is_set():
                        self._tell(Report("joined", order.name))
                        settled.set()
                    await self._until_stopped_or(nanny.finished())
                why = "has ended"
            except Exception as error:
                if not settled.is_set():
                    raise
                why = f"cannot be started: {error}"
            if not self._stop.is_set():
                self._log.line(order.name, f"{why}; another one is started in {_PAUSE:g} s")
                await self._until_stopped_or(asyncio.sleep(_PAUSE))

    async def _until_stopped_or(self, other: Coroutine[Any, Any, None]) -> None:
        tasks = {asyncio.create_task(one) for one in (self._stop.wait(), other)}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _on_host(self, order: WorkerOrder, scheduler: FleetScheduler, settled: asyncio.Event) -> None:
        from orchestrator.fleet.hosts import HostWorker

        loop, ended = asyncio.get_running_loop(), asyncio.Queue[str]()
        worker = HostWorker(order, scheduler.address, self._orders.key, self._log, lambda why: _put(loop, ended, why))
        self._hosts.append(worker)
        worker.start()
        while ended.empty() and not self._stop.is_set():
            if not worker.has_joined and order.name in {one.name for one in scheduler.workers.values()}:
                worker.has_joined = True
                self._tell(Report("joined", order.name))
                settled.set()
            await asyncio.sleep(_POLL)
        if not ended.empty():
            why = ended.get_nowait()
            if not worker.has_joined:
                self._tell(Report("failed", order.name, why, tuple(told(self._log.file, order.name))))
            self._log.line(order.name, why)


def _put(loop: asyncio.AbstractEventLoop, ended: asyncio.Queue[str], why: str) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(ended.put_nowait, why)


def _refusal(orders: Orders, error: OSError) -> Report:
    match error.errno:
        case errno.EADDRINUSE:
            text = f"port {orders.port} of {orders.host} is taken by another program"
            hint = "name another --port, or none: then it is one that is free"
        case errno.EADDRNOTAVAIL:
            text = f"{orders.host} is no address of this machine"
            hint = "--host takes one that `ip address` shows here"
        case _:
            text = f"the scheduler cannot listen on {orders.host}, port {orders.port}: {error.strerror or error}"
            hint = "name another --host or --port"
    return Report("refused", text=text, hint=hint)


if __name__ == "__main__":
    sys.exit(main())
