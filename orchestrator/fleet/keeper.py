# SPDX-License-Identifier: GPL-2.0-only
"""The process that keeps a fleet when ``fleet up`` has ended, how it is started, and how it is ended.

It has the scheduler, and a process for each worker.

A worker is a command, ``fleet worker``, here or through ssh, that ends with its standard input: so all of them end,
and their guests with them, when the keeper is killed. One that ends before is started again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.hosts import ssh_command, ssh_failure
from orchestrator.fleet.serve import LOG, log_to
from orchestrator.fleet.state import (
    STAY,
    WORKER_FOLDER,
    FleetState,
    Orders,
    Report,
    WorkerOrder,
    known_fleets,
    log_file,
    process_start,
    state_file,
    stored,
)
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.plain_text import plain_line
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.fleet.scheduler import FleetScheduler

_HERE = [sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()"]
_POLL = 0.2
_PAUSE = 2.0
"""Seconds before another worker takes the place of one that has ended."""

_SILENCE_LIMIT = 300.0
"""Seconds without a word from a worker that has not joined. Its lab may be installing packages, and says so."""

_WORKER_END_LIMIT = 20.0
"""Seconds for a worker to end with its guests, before it is killed."""

_QUOTED = 8
_PIECE = 4096
_LONGEST_LINE = 1000


def main() -> int:
    """Keep the fleet that a line on standard input orders, and report on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: SIGTERM ends a fleet
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    orders = Orders.model_validate_json(sys.stdin.buffer.readline())
    log = log_file(orders.name)
    with log.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"`{PROGRAM} fleet status {orders.name}` shows it"
            text = f"fleet '{orders.name}' is being kept by another process already"
            _tell(Report(kind="refused", text=text, hint=hint))
            return 1
        os.truncate(log, 0)
        with ScratchFolder(WORKER_FOLDER) as folder:
            # The scheduler would make one that nobody removes. Dask reads this when it is imported.
            os.environ["DASK_TEMPORARY_DIRECTORY"] = str(folder)
            os.environ["MALLOC_TRIM_THRESHOLD_"] = "65536"  # of workers, which give free memory back
            log_to(log)
            try:
                return asyncio.run(Keeper(orders).keep())
            finally:
                Path(lock.name).unlink(missing_ok=True)


def _tell(report: Report) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(1, report.line())


class Keeper:
    """A fleet, and what was ordered for it."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._stop = asyncio.Event()

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
        FleetState(
            name=orders.name,
            address=scheduler.address,
            key_file=orders.key_file,
            keeper=os.getpid(),
            started=started,
            workers=tuple(order.name for order in orders.workers),
        ).write()
        try:
            _tell(Report(kind="listening", text=scheduler.address))
            threading.Thread(target=self._await_permission, args=(loop,), daemon=True).start()
            workers = [_Worker(order, scheduler, orders, self._stop) for order in orders.workers]
            tasks = [asyncio.create_task(worker.keep()) for worker in workers]
            announcing = asyncio.create_task(_announce(workers))
            await self._stop.wait()
            announcing.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await scheduler.close()
        finally:
            state_file(orders.name).unlink(missing_ok=True)
        return 0

    async def _scheduler(self) -> FleetScheduler | None:
        from orchestrator.fleet.target import security_of, set_up_dask

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
            _tell(_refusal(orders, cause))
            return None

    def _await_permission(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: end with the command that has started us, unless it lets us stay."""
        # Not through sys.stdin: a thread that waits in there makes Python abort at its end.
        if os.read(0, len(STAY)) != STAY:
            loop.call_soon_threadsafe(self._stop.set)


class _Worker:
    """A worker's process, and the next one where it ends."""

    def __init__(self, order: WorkerOrder, scheduler: FleetScheduler, orders: Orders, stop: asyncio.Event) -> None:
        self._order, self._scheduler, self._orders, self._stop = order, scheduler, orders, stop
        self._said: deque[str] = deque(maxlen=_QUOTED)
        self.settled = asyncio.Event()
        """It has joined, or will not."""

    async def keep(self) -> None:
        """Keep it until we are told to stop, if it joins at all."""
        while not self._stop.is_set():
            self._said.clear()
            try:
                why = await self._once()
            except OSError as error:
                why = f"{error.filename or 'it'} cannot be started: {error.strerror}"
            if self._stop.is_set():
                return
            if not self.settled.is_set():
                _tell(Report(kind="failed", name=self._order.name, text=why, detail=tuple(self._said)))
                LOG.info("%s: %s", self._order.name, why)
                self.settled.set()
                return
            LOG.info("%s: %s; another one is started in %g s", self._order.name, why, _PAUSE)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _PAUSE)

    async def _once(self) -> str:
        """Start it; why it has ended."""
        order = self._order
        process = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        listening = asyncio.create_task(self._listen(process.stdout))
        joining = asyncio.create_task(self._await_joining())
        process.stdin.write(self._orders.key.encode())
        await _until(listening, self._stop)
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _WORKER_END_LIMIT)
        if process.returncode is None:
            process.kill()
        status = await process.wait()
        await asyncio.wait([listening], timeout=_POLL)  # for its last words
        joining.cancel()
        if listening.done() and not listening.result():
            return f"no output for {_SILENCE_LIMIT:g} s"
        return ssh_failure(order, status, self._said) if order.ssh else f"it has ended with status {status}"

    def _command(self) -> list[str]:
        order = self._order
        words = ["fleet", "worker", self._scheduler.address, "--key-from-stdin", "--name", order.name]
        words += [] if order.guests is None else ["--guests", str(order.guests)]
        words += [] if order.memory_mib is None else ["--memory", f"{order.memory_mib}M"]
        return ssh_command(order, words) if order.ssh else [*_HERE, *words, "--host", self._orders.host]

    async def _await_joining(self) -> None:
        while self._order.name not in {one.name for one in self._scheduler.workers.values()}:
            await asyncio.sleep(_POLL)
        if not self.settled.is_set():
            _tell(Report(kind="joined", name=self._order.name))
            self.settled.set()

    async def _listen(self, output: asyncio.StreamReader) -> bool:
        """Log what it says, bounded, and with nothing in it that a terminal obeys. False where it says nothing."""
        line, piece = b"", b"?"
        while piece:
            try:
                piece = await asyncio.wait_for(output.read(_PIECE), _SILENCE_LIMIT)
            except TimeoutError:
                if self.settled.is_set():
                    continue
                return False
            *lines, line = (line + piece).split(b"\n")
            if line and (not piece or len(line) > _PIECE):
                lines, line = [*lines, line], b""
            for one in lines:
                said = plain_line(one.rstrip(b"\r").decode(errors="backslashreplace")[:_LONGEST_LINE])
                self._said.append(said)
                LOG.info("%s: %s", self._order.name, said)
        return True


async def _announce(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        await worker.settled.wait()
    _tell(Report(kind="ready"))


async def _until(one: asyncio.Future[Any], stop: asyncio.Event) -> None:
    """Wait until something is done, or we are told to stop."""
    stopping = asyncio.create_task(stop.wait())
    either: list[asyncio.Future[Any]] = [one, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


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
    return Report(kind="refused", text=text, hint=hint)


# How a keeper is started, and how it is ended: that process and no other.


_SCRATCH = (WORKER_FOLDER, "orchestrator-boot-")
_END_LIMIT = 60.0
"""Seconds for a keeper to end its workers, which end their guests; Dask kills a worker after nine."""


class StartedFleet:
    """A keeper that was started. It ends with this process, unless ``let_stay`` was called."""

    def __init__(self, orders: Orders) -> None:
        """Raises UsageError where a fleet of that name runs."""
        if orders.name in known_fleets() and stored(orders.name).is_running:
            raise UsageError(
                f"fleet '{orders.name}' runs already",
                where=str(state_file(orders.name)),
                hint=f"`{PROGRAM} fleet status {orders.name}` shows it, `{PROGRAM} fleet down {orders.name}` ends it,"
                " and --name starts another one beside it",
            )
        self._orders = orders
        log = log_file(orders.name)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.touch(mode=0o600)
        with log.open("ab") as errors:
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", "-m", "orchestrator.fleet.keeper"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,  # the caller's may be removed before the fleet ends
                env=_environment(),
                umask=0o077,
                start_new_session=True,
            )
        with suppress(BrokenPipeError):  # one that has ended at once: see ``reports``
            self._tell(orders.line())

    def reports(self) -> Iterator[Report]:
        """What becomes of it, until all is known. Raises HostError where the keeper has to end."""
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            report = Report.model_validate_json(line)
            if report.kind == "refused":
                raise HostError(report.text, hint=report.hint)
            if report.kind == "ready":
                return
            yield report
        raise self._gone()

    def let_stay(self) -> None:
        """Let it go on when this process has ended. Raises LabError where it has not waited for that."""
        try:
            self._tell(STAY)
        except BrokenPipeError:
            raise self._gone() from None

    def _tell(self, line: bytes) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(line)
        self._keeper.stdin.flush()

    def _gone(self) -> LabError:
        log = log_file(self._orders.name)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return LabError("the fleet's keeper has ended", where=str(log), detail=lines[-_QUOTED:])

    def end(self) -> None:
        """End it with all that it has started, and wait for that."""
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None and not stream.closed:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_LIMIT)


def end_fleet(state: FleetState) -> bool:
    """End a fleet's keeper, and with it scheduler and workers; whether it was there. Nothing of it is left.

    Raises LabError where it does not end.
    """
    was_running = _end_process(state.keeper, state.started)
    state_file(state.name).unlink(missing_ok=True)
    for prefix in _SCRATCH:  # what killed processes have left
        ScratchFolder(prefix).close()
    return was_running


def _end_process(pid: int, started: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Behind this check it can only be the one that is meant: the descriptor keeps its number from passing on.
        if process_start(pid) != started:
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], _END_LIMIT)[0]:
                return True
    finally:
        os.close(process)
    raise LabError(f"the fleet's keeper, process {pid}, does not end, though it was killed")


def _environment() -> dict[str, str]:
    """Ours, which is to mean the same in another folder."""
    own = {**os.environ, "ORCHESTRATOR_LAB": str(lab_dir()), "ORCHESTRATOR_CACHE": str(cache_dir())}
    if own.get("PYTHONPATH"):
        own["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in own["PYTHONPATH"].split(os.pathsep))
    return own


if __name__ == "__main__":
    sys.exit(main())
