# SPDX-License-Identifier: GPL-2.0-only
"""A worker in the foreground: what the fleet's keeper, a batch system, a pod, or a login over ssh starts and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from orchestrator.errors import HostError, Interrupted, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.state import WORKER_FOLDER, Room, log_file
from orchestrator.fleet.target import address_towards, log_dask_to, security_of, set_up_dask
from orchestrator.plain_text import plain_text
from orchestrator.program import PROGRAM

_START_LIMIT = 300.0
"""Seconds for a worker to join: thirty were too few on a host with a load of ten for each processor."""

LOG = logging.getLogger("orchestrator.fleet")

_LARGEST_LOG = 512 << 10
_KEY_ENDS = b"-----END PRIVATE KEY-----"
_LARGEST_KEY = 64 << 10
_INPUT_ENDED = 0
"""In place of a signal's number: standard input was closed."""


def log_to(file: Path | None) -> None:
    """Let all that this process and Dask log go to a file of bounded size, for its owner only, or to standard error."""
    if file is None:
        handler: logging.Handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
    else:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        handler = RotatingFileHandler(file, maxBytes=_LARGEST_LOG, backupCount=1, errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log_dask_to(handler)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)


@dataclass(frozen=True)
class Foreground:
    """A worker to be, by the scheduler's address, the fleet's key, and what it offers.

    ``host`` is the interface to listen on; None is the one that leads to the scheduler. With ``ends_with_input`` it
    ends when standard input does, and logs to standard error.
    """

    scheduler: str
    key: str = field(repr=False)
    name: str
    room: Room
    host: str | None
    ends_with_input: bool

    def serve(self) -> str:
        """Be it, and say on standard error when it has joined; why it has ended.

        Raises Interrupted for a signal, LabError where it cannot join.
        """
        set_up_dask()
        log = None if self.ends_with_input else log_file(f"worker-{self.name}")
        log_to(log)
        try:
            number = asyncio.run(self._serve("" if log is None else f"; its log is {log}"))
        except (LabError, Interrupted):
            raise
        except Exception as error:  # whatever Dask makes of a worker that cannot join
            raise self._not_joined(error) from None
        if number == _INPUT_ENDED:
            return "standard input was closed: this worker has ended"
        if number is None:
            return "the fleet has ended, and this worker with it"
        raise Interrupted(number)

    async def _serve(self, where: str) -> int | None:
        """What has ended it: a signal's number, _INPUT_ENDED, or None for the fleet's own end."""
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[int] = loop.create_future()

        def stop(number: int) -> None:
            if not stopped.done():
                stopped.set_result(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, stop, number)
        if self.ends_with_input:
            threading.Thread(target=_await_end, args=(loop, stop), daemon=True).start()
        working = asyncio.create_task(self._work(where))
        either: list[asyncio.Future[Any]] = [stopped, working]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()
        return stopped.result() if stopped.done() else None

    async def _work(self, where: str) -> None:
        """Be a worker of Dask's until the fleet ends, or this is cancelled."""
        from orchestrator.fleet.worker import BootPlugin, FleetWorker

        with ScratchFolder(WORKER_FOLDER) as folder:
            worker = FleetWorker(
                self.scheduler,
                nthreads=self.room.guests + 1,  # one to answer questions while guests run
                name=self.name,
                host=self.host or address_towards(self.scheduler),  # without one Dask 2026.8 listens everywhere
                security=security_of(self.key),
                memory_limit=0,
                local_directory=str(folder),
                death_timeout=_START_LIMIT,
                plugins=(BootPlugin(self.name, self.room.guests, self.room.memory_mib),),
            )
            async with worker:
                text = f"worker {self.name} has joined {self.scheduler}{where}"
                print(plain_text(text), file=sys.stderr, flush=True)
                finished: Any = worker.finished  # which has no annotations
                await finished()

    def _not_joined(self, error: BaseException) -> LabError:
        # Dask raises a RuntimeError because of the one that says why.
        cause = error.__cause__ or error
        if f"name taken, {self.name}" in str(cause):
            return UsageError(
                f"the fleet has a worker called '{self.name}' already", hint="give this one a name of its own: --name"
            )
        return HostError(
            f"the worker could not join the fleet at {self.scheduler}",
            detail=f"{type(cause).__name__}: {cause}".splitlines()[:1],
            hint=f"`{PROGRAM} doctor --fleet {self.scheduler}` asks the others",
        )


def key_from_input() -> str:
    """A fleet's key from standard input, up to its last line: what follows stays. Raises UsageError for no key."""
    text = b""
    while _KEY_ENDS not in text:
        line = sys.stdin.buffer.readline(_LARGEST_KEY)
        text += line
        if not line or len(text) > _LARGEST_KEY:
            raise UsageError("there is no key of a fleet on standard input", where="--key-from-stdin")
    return text.decode("ascii", errors="replace")


def _await_end(loop: asyncio.AbstractEventLoop, stop: Callable[[int], None]) -> None:
    # Not through sys.stdin: a thread that waits in there makes Python abort at its end.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop, _INPUT_ENDED)
