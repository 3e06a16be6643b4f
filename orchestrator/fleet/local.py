# SPDX-License-Identifier: GPL-2.0-only
"""How a fleet's keeper is started, and how it is ended: that process and no other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.state import (
    STAY,
    WORKER_FOLDER,
    FleetState,
    Orders,
    Report,
    known_fleets,
    log_file,
    process_start,
    state_file,
    stored,
)
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.program import PROGRAM

_QUOTED = 8
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
