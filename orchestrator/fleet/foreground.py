# SPDX-License-Identifier: GPL-2.0-only
"""A worker in the foreground: what a batch system, a pod, or a login over ssh starts and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from orchestrator.errors import HostError, Interrupted, LabError, UsageError
from orchestrator.fleet.kept_log import KeptLog, output_into, told
from orchestrator.fleet.room import Room
from orchestrator.fleet.serve import served_worker
from orchestrator.fleet.state import log_file
from orchestrator.plain_text import plain_text
from orchestrator.program import PROGRAM

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
