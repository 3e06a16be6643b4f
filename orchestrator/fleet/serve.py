# SPDX-License-Identifier: GPL-2.0-only
"""A worker with its nanny: as a part of a process, or in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.errors import HostError, Interrupted, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.keys import security_of
from orchestrator.fleet.local import KeptLog, output_into, told
from orchestrator.fleet.state import WORKER_FOLDER, Room, log_file
from orchestrator.fleet.target import address_towards, set_up_dask
from orchestrator.plain_text import plain_text
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from distributed.nanny import Nanny


# A worker with its nanny, as a part of this process.

_START_LIMIT = 300.0
"""Seconds for a worker to join: thirty were too few on a host with a load of ten for each processor."""


@asynccontextmanager
async def served_worker(scheduler: str, key: str, name: str, room: Room, host: str | None) -> AsyncIterator[Nanny]:
    """A worker that has joined the fleet whose scheduler is at that address; it ends with the context.

    ``host`` is the interface to listen on; None is the one that leads to the scheduler. Raises what Dask raises where
    the worker cannot join.
    """
    set_up_dask()
    from distributed.nanny import Nanny

    with ScratchFolder(WORKER_FOLDER) as folder:
        nanny = Nanny(
            scheduler,
            nthreads=room.guests + 1,  # one to answer questions while guests run
            name=name,
            host=host or address_towards(scheduler),  # without one Dask 2026.8 listens on every interface
            security=security_of(key),
            worker_class=partial(_worker, room),
            memory_limit=0,
            local_directory=str(folder),
            death_timeout=_START_LIMIT,
        )
        async with nanny:
            yield nanny


def _worker(room: Room, **options: Any) -> object:
    """In a process of its own: the nanny's needs none of what runs guests, which is 25 MB."""
    from orchestrator.fleet.worker import BootPlugin, FleetWorker

    plugin = BootPlugin(options["name"], room.guests, room.memory_mib)
    return FleetWorker(plugins=(plugin,), **options)


# A worker in the foreground: what a batch system, a pod, or a login over ssh starts and ends.

_KEY_ENDS = b"-----END PRIVATE KEY-----"
_LARGEST_KEY = 64 << 10
_INPUT_ENDED = 0
"""In place of a signal's number: standard input was closed."""


@dataclass(frozen=True)
class Foreground:
    """A worker to be, by the scheduler's address, the fleet's key, and what it offers.

    ``host`` is the interface to listen on; None is the one that leads to the scheduler. With ``ends_with_input`` it
    ends when standard input does.
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
        log = KeptLog(log_file(f"worker-{self.name}"))
        log.empty()
        try:
            with output_into(log) as stream:
                number = asyncio.run(self._serve(log, stream))
        except (LabError, Interrupted):
            raise
        except Exception as error:  # whatever Dask makes of a worker that cannot join
            raise self._not_joined(f"{type(error).__name__}: {error}", log) from None
        finally:
            log.close()
        if number == _INPUT_ENDED:
            return "standard input was closed: this worker has ended"
        if number is None:
            return "the fleet has ended, and this worker with it"
        raise Interrupted(number)

    async def _serve(self, log: KeptLog, stream: TextIO) -> int | None:
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
        tending = asyncio.create_task(log.tend())
        try:
            async with served_worker(self.scheduler, self.key, self.name, self.room, self.host) as nanny:
                text = f"worker {self.name} has joined {self.scheduler}; its log is {log.file}"
                print(plain_text(text), file=stream, flush=True)
                ended = asyncio.ensure_future(nanny.finished())
                await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
        finally:
            tending.cancel()
        return stopped.result() if stopped.done() else None

    def _not_joined(self, why: str, log: KeptLog) -> LabError:
        errors = told(log.file)
        if any(f"name taken, {self.name}" in line for line in errors):
            return UsageError(
                f"the fleet has a worker called '{self.name}' already", hint="give this one a name of its own: --name"
            )
        return HostError(
            f"the worker could not join the fleet at {self.scheduler}",
            where=str(log.file),
            detail=errors or why.splitlines()[-1:],
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
