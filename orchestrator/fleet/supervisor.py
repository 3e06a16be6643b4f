# SPDX-License-Identifier: GPL-2.0-only
"""The supervisor of a fleet, which runs on after ``fleet up``: its process, and how to start and end it.

It runs the scheduler, and a process for each worker: the command ``fleet worker``, here or through ssh, which ends when
its standard input closes. So all workers and their guests end if the supervisor is killed. It restarts a worker that
ends early.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.key import security_of
from orchestrator.fleet.remote_worker import ssh_command, ssh_failure
from orchestrator.fleet.serve import LOG, log_to
from orchestrator.fleet.state import (
    WORKER_FOLDER,
    FleetState,
    Report,
    SupervisorConfig,
    WorkerConfig,
    known_fleets,
    log_file,
    process_start,
    state_file,
    stored,
)
from orchestrator.fleet.target import set_up_dask
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.plain_text import plain_line
from orchestrator.program import PROGRAM

if TYPE_CHECKING:  # needs the extra "fleet"
    from orchestrator.fleet.scheduler import FleetScheduler

_HERE = [sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()"]
_POLL = 0.2
_PAUSE = 2.0
"""Seconds before an ended worker is restarted."""

_SILENCE_LIMIT = 300.0
"""Seconds of silence from a worker that has not joined. Its lab may be installing packages, and prints that."""


_QUOTED = 8


def main() -> int:
    """Run the fleet described by a line on standard input, and report on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by workers: SIGTERM ends a fleet
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    config = SupervisorConfig.model_validate_json(sys.stdin.buffer.readline())
    with ScratchFolder(WORKER_FOLDER) as folder:
        # The scheduler would make a folder and leave it there. Dask reads this on import.
        os.environ["DASK_TEMPORARY_DIRECTORY"] = str(folder)
        os.environ["MALLOC_TRIM_THRESHOLD_"] = "65536"  # makes workers return free memory
        log_to(log_file(config.name))
        try:
            asyncio.run(_supervise(config))
        except HostError as error:
            _tell(Report(kind="refused", text=error.what, hint=error.hint))
            return 1
    return 0


def _tell(report: Report) -> None:
    with suppress(OSError):  # nothing reads it any more
        os.write(1, report.line())


async def _supervise(config: SupervisorConfig) -> None:
    """Run a fleet until SIGTERM. Raises HostError if its scheduler cannot be started."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    scheduler = await _scheduler(config)
    started = process_start(os.getpid())
    assert started is not None
    FleetState(
        name=config.name,
        address=scheduler.address,
        key_file=config.key_file,
        keeper=os.getpid(),
        started=started,
        workers=tuple(worker.name for worker in config.workers),
    ).write()
    try:
        _tell(Report(kind="listening", text=f"scheduler: {scheduler.address}"))
        workers = [asyncio.create_task(Worker(worker, scheduler, config).keep()) for worker in config.workers]
        await stop.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await scheduler.close()
    finally:
        state_file(config.name).unlink(missing_ok=True)


async def _scheduler(config: SupervisorConfig) -> FleetScheduler:
    set_up_dask()
    from orchestrator.fleet.scheduler import FleetScheduler  # imports distributed, which Dask's settings precede

    try:
        scheduler = FleetScheduler(config.host, config.port, security_of(config.key))
        await scheduler
    except (OSError, RuntimeError) as error:
        # Dask raises a RuntimeError whose cause is the telling error.
        cause = error.__cause__ or error
        if not isinstance(cause, OSError):
            raise
        raise _refusal(config, cause) from None
    return scheduler


def _refusal(config: SupervisorConfig, error: OSError) -> HostError:
    match error.errno:
        case errno.EADDRINUSE:
            text = f"port {config.port} of {config.host} is taken by another program"
            hint = "name another --port, or leave it out for a free one"
        case errno.EADDRNOTAVAIL:
            text = f"{config.host} is not an address of this machine"
            hint = "name one that `ip address` shows: --host"
        case _:
            text = f"the scheduler cannot listen on {config.host}, port {config.port}: {error.strerror or error}"
            hint = "name another --host or --port"
    return HostError(text, hint=hint)


class Worker:
    """A worker's process, restarted when it ends."""

    def __init__(self, config: WorkerConfig, scheduler: FleetScheduler, fleet: SupervisorConfig) -> None:
        self._config, self._scheduler, self._fleet = config, scheduler, fleet
        self._said: deque[str] = deque(maxlen=_QUOTED)
        self._has_joined = False

    async def keep(self) -> None:
        name = self._config.name
        while True:
            self._said.clear()
            try:
                why = await self._once()
            except OSError as error:
                why = f"{error.filename or 'it'} cannot be started: {error.strerror}"
            if not self._has_joined:
                _tell(Report(kind="failed", text="\n    ".join([f"worker {name}: has not joined: {why}", *self._said])))
                LOG.info("%s: %s", name, why)
                return
            LOG.info("%s: %s; another one is started in %g s", name, why, _PAUSE)
            await asyncio.sleep(_PAUSE)

    async def _once(self) -> str:
        """Run it once; returns why it ended."""
        config = self._config
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
        process.stdin.write(self._fleet.key.encode())
        try:
            await asyncio.shield(listening)
        finally:
            process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 20.0)  # ends its guests
            if process.returncode is None:
                process.kill()
            status = await process.wait()
            await asyncio.wait([listening], timeout=_POLL)  # for its last lines
            joining.cancel()
        if not listening.result():
            return f"no output for {_SILENCE_LIMIT:g} s"
        return ssh_failure(config, status, self._said) if config.ssh else f"it has ended with status {status}"

    def _command(self) -> list[str]:
        config = self._config
        words = ["fleet", "worker", self._scheduler.address, "--key-from-stdin", "--name", config.name]
        words += [] if config.guests is None else ["--guests", str(config.guests)]
        words += [] if config.memory is None else ["--memory", config.memory]
        return ssh_command(config, words) if config.ssh else [*_HERE, *words, "--host", self._fleet.host]

    async def _await_joining(self) -> None:
        while self._config.name not in {worker.name for worker in self._scheduler.workers.values()}:
            await asyncio.sleep(_POLL)
        if not self._has_joined:
            self._has_joined = True
            _tell(Report(kind="joined", text=f"worker {self._config.name}: joined"))

    async def _listen(self, output: asyncio.StreamReader) -> bool:
        """Log its output, bounded and without terminal controls. False if it prints nothing."""
        while True:
            try:
                line = await asyncio.wait_for(output.readline(), _SILENCE_LIMIT)
            except TimeoutError:
                if self._has_joined:
                    continue
                return False
            except ValueError:  # a line longer than the reader's 64 KiB
                line = b"..."
            if not line:
                return True
            said = plain_line(line.rstrip(b"\r\n").decode(errors="backslashreplace")[:1000])
            self._said.append(said)
            LOG.info("%s: %s", self._config.name, said)


_END_LIMIT = 60.0
"""Seconds for the supervisor to end its workers, which end their guests; Dask kills a worker after nine."""


class StartedFleet:
    """A supervisor process that was started."""

    def __init__(self, config: SupervisorConfig) -> None:
        """Raises UsageError if a fleet of that name is running."""
        if config.name in known_fleets():
            if stored(config.name).is_running:
                shows, ends = f"`{PROGRAM} fleet status {config.name}`", f"`{PROGRAM} fleet down {config.name}`"
                hint = f"{shows} shows it, {ends} ends it, and --name starts another one beside it"
                raise UsageError(
                    f"fleet '{config.name}' is running already", where=str(state_file(config.name)), hint=hint
                )
            state_file(config.name).unlink(missing_ok=True)
        self._config, self._log = config, log_file(config.name)
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log.touch(mode=0o600)
        with self._log.open("wb") as errors:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "orchestrator.fleet.supervisor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._log.parent,  # the caller's folder may be removed while the fleet runs
                env=_environment(),
                umask=0o077,
                start_new_session=True,
            )
        assert self._supervisor.stdin is not None
        with suppress(BrokenPipeError), self._supervisor.stdin as config_line:  # it may have ended at once
            config_line.write(config.line())

    def reports(self) -> Iterator[Report]:
        """Where its scheduler listens, and each worker's progress. Raises HostError if the supervisor ended."""
        assert self._supervisor.stdout is not None
        unsettled = len(self._config.workers)
        for line in self._supervisor.stdout:
            report = Report.model_validate_json(line)
            if report.kind == "refused":
                raise HostError(report.text, hint=report.hint)
            yield report
            unsettled -= report.kind != "listening"
            if not unsettled:
                return
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise LabError("the fleet's supervisor has ended", where=str(self._log), detail=lines[-_QUOTED:])

    def end(self) -> None:
        self._supervisor.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_END_LIMIT)


def end_fleet(state: FleetState) -> bool:
    """End a fleet's supervisor, with scheduler and workers; returns whether it was running. Removes all its files.

    Raises LabError if it does not end.
    """
    was_running = _end_process(state.keeper, state.started)
    state_file(state.name).unlink(missing_ok=True)
    for prefix in (WORKER_FOLDER, "orchestrator-boot-"):  # leftovers of killed processes
        ScratchFolder(prefix).close()
    return was_running


def _end_process(pid: int, started: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The open descriptor keeps the process number from being reused after this check.
        if process_start(pid) != started:
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], _END_LIMIT)[0]:
                return True
    finally:
        os.close(process)
    raise LabError(f"the fleet's supervisor, process {pid}, does not end, though it was killed")


def _environment() -> dict[str, str]:
    """The environment of this process, with variables made valid in another folder."""
    variables = {**os.environ, "ORCHESTRATOR_LAB": str(lab_dir()), "ORCHESTRATOR_CACHE": str(cache_dir())}
    if variables.get("PYTHONPATH"):
        variables["PYTHONPATH"] = os.pathsep.join(
            str(Path(folder).absolute()) for folder in variables["PYTHONPATH"].split(os.pathsep)
        )
    return variables


if __name__ == "__main__":
    sys.exit(main())
