# SPDX-License-Identifier: GPL-2.0-only
"""A worker in the foreground, for the fleet's supervisor, a batch system, a pod, or a login through ssh."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import HostError, Interrupted, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.key import security_of
from orchestrator.fleet.state import WORKER_FOLDER, log_file
from orchestrator.fleet.target import address_towards, log_dask_to, set_up_dask
from orchestrator.paths import cache_dir
from orchestrator.plain_text import plain_text
from orchestrator.program import PROGRAM

if TYPE_CHECKING:  # needs the extra "fleet"
    from orchestrator.fleet.worker import FleetWorker

_START_LIMIT = 300.0
"""Seconds for a worker to join: thirty were too few on a host with a load of ten per processor."""

LOG = logging.getLogger("orchestrator.fleet")

_LARGEST_KEY = 64 << 10
_INPUT_ENDED = 0
"""Stands for a signal's number: standard input was closed."""


def log_to(file: Path | None) -> None:
    """Log this process and Dask to a private file of bounded size, or to standard error."""
    if file is None:
        handler: logging.Handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
    else:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        handler = RotatingFileHandler(file, maxBytes=512 << 10, backupCount=1, errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log_dask_to(handler)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)


def serve(
    scheduler: str, key: str, name: str, room: tuple[int, int], host: str | None, *, ends_with_input: bool
) -> str:
    """Be a worker until the end; returns why it ended. Prints to standard error when it has joined.

    ``host`` is the interface to listen on, by default the one that leads to the scheduler. With ``ends_with_input`` it
    ends when standard input does, and logs to standard error. Raises Interrupted for a signal, LabError if it cannot
    join.
    """
    set_up_dask()
    from orchestrator.fleet.worker import Boots, FleetWorker  # imports distributed, which Dask's settings precede

    log = None if ends_with_input else log_file(f"worker-{name}")
    log_to(log)
    joined = f"worker {name} has joined {scheduler}" + ("" if log is None else f"; its log is {log}")
    try:
        with ScratchFolder(WORKER_FOLDER) as folder:
            make = partial(
                FleetWorker,
                scheduler,
                Boots(cache_dir()),
                room,
                nthreads=room[0] + 1,  # one answers requests while guests run
                name=name,
                host=host or address_towards(scheduler),  # without it Dask 2026.8 listens on all interfaces
                security=security_of(key),
                memory_limit=0,
                local_directory=str(folder),
                death_timeout=_START_LIMIT,
            )
            number = asyncio.run(_run(make, joined, ends_with_input=ends_with_input))
    except LabError:
        raise
    except Exception as error:  # any error of Dask's for a worker that cannot join
        # Dask raises a RuntimeError whose cause is the telling error.
        cause = error.__cause__ or error
        if f"name taken, {name}" in str(cause):
            what = f"the fleet has a worker called '{name}' already"
            raise UsageError(what, hint="give this one a name of its own: --name") from None
        raise HostError(
            f"the worker could not join the fleet at {scheduler}",
            detail=f"{type(cause).__name__}: {cause}".splitlines()[:1],
            hint=f"`{PROGRAM} fleet status {scheduler}` asks the others",
        ) from None
    if number is None:
        return "the fleet has ended, and this worker with it"
    if number == _INPUT_ENDED:
        return "standard input was closed: this worker has ended"
    raise Interrupted(number)


async def _run(make: Callable[[], FleetWorker], joined: str, *, ends_with_input: bool) -> int | None:
    """Be a Dask worker; returns what ended it: a signal's number, _INPUT_ENDED, or None for the fleet's end."""
    loop, working = asyncio.get_running_loop(), asyncio.current_task()
    assert working is not None
    stopped: list[int] = []

    def stop(number: int) -> None:
        if not stopped:
            stopped.append(number)
            working.cancel()

    def await_end() -> None:
        # Not through sys.stdin: Python aborts on exit while a thread waits in there.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop, _INPUT_ENDED)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
    if ends_with_input:
        threading.Thread(target=await_end, daemon=True).start()
    try:
        async with make() as worker:
            print(plain_text(joined), file=sys.stderr, flush=True)
            await worker.finished()
    except asyncio.CancelledError:
        if not stopped:
            raise
    return stopped[0] if stopped else None


def key_from_input() -> str:
    """A fleet's key from standard input, up to its last line; the rest stays unread. Raises UsageError."""
    text = b""
    while b"-----END PRIVATE KEY-----" not in text:
        line = sys.stdin.buffer.readline(_LARGEST_KEY)
        text += line
        if not line or len(text) > _LARGEST_KEY:
            raise UsageError("standard input has no key of a fleet", where="--key-from-stdin")
    return text.decode("ascii", errors="replace")
