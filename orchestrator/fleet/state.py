# SPDX-License-Identifier: GPL-2.0-only
"""The fleets that this lab has started, one file each: ``fleets/NAME.json`` beside the results.

Also the configuration of a fleet's supervisor and its reports: JSON lines on its standard streams.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.catalog.data import unknown
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.guest.slots import host_memory_mib
from orchestrator.paths import lab_dir
from orchestrator.plain_text import size_mib
from orchestrator.process import stat_fields
from orchestrator.program import PROGRAM

USUAL_NAME = "local"

WORKER_FOLDER = "orchestrator-worker-"
"""Prefix of the temporary folders of a fleet's processes."""

_SUFFIX = ".json"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


class FleetState(_Record):
    """A fleet started by ``fleet up``: its scheduler's address, its key, and its supervisor."""

    name: str
    address: str
    key_file: str
    keeper: int
    """The supervisor's process ID; files and JSON keep the key of earlier versions."""
    started: int
    """When that process started, in ticks since the host's boot, as process IDs are reused."""
    workers: tuple[str, ...]
    """The names of all workers ordered."""

    @property
    def is_running(self) -> bool:
        return process_start(self.keeper) == self.started

    def write(self) -> None:
        """Write the fleet's private file. Raises HostError if it exists."""
        file = state_file(self.name)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            file.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            hint = f"`{PROGRAM} fleet status {self.name}` shows it"
            raise HostError(f"fleet '{self.name}' already has a supervisor, another process", hint=hint) from None
        file.write_text(self.model_dump_json(indent=1) + "\n")


def state_file(name: str) -> Path:
    """The path of a fleet's file."""
    return lab_dir() / "fleets" / f"{name}{_SUFFIX}"


def log_file(name: str) -> Path:
    """The log of a fleet's supervisor and its local workers."""
    return lab_dir() / "fleets" / f"{name}.log"


def check_name(name: str) -> None:
    """Raise UsageError for an invalid fleet name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"found {name!r}; a fleet's name has lower-case letters, digits and hyphens", where="--name")


def known_fleets() -> Sequence[str]:
    """The names of the fleets that have a file here."""
    return sorted(file.stem for file in state_file("x").parent.glob(f"*{_SUFFIX}") if _NAME.fullmatch(file.stem))


def stored(name: str) -> FleetState:
    """A fleet of this lab. Raises UsageError if there is none of that name, HostError for a damaged file."""
    known = known_fleets()
    if name not in known:
        if not known:
            raise UsageError(
                f"no fleet '{name}' was started here",
                hint=f"`{_start(name)}` starts it; a fleet of another machine is named by its address: tls://HOST:PORT",
            )
        raise UsageError(unknown("fleet", name, known), hint="a fleet of another machine is named by its address")
    file = state_file(name)
    try:
        return FleetState.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        what = (error.strerror or "") if isinstance(error, OSError) else "it is damaged"
        hint = f"remove it, and start the fleet again: {_start(name)}"
        raise HostError(f"the fleet's file cannot be read: {what}", where=str(file), hint=hint) from None


def running(name: str) -> FleetState:
    """The same, if its supervisor is running. Raises LabError if it has ended."""
    state = stored(name)
    if not state.is_running:
        raise LabError(
            f"fleet '{name}' has ended: its supervisor, process {state.keeper}, is gone",
            where=str(log_file(name)),
            hint=f"start it again: {_start(name)}",
        )
    return state


def _start(name: str) -> str:
    return f"{PROGRAM} fleet up" + ("" if name == USUAL_NAME else f" --name {shlex.quote(name)}")


def process_start(pid: int) -> int | None:
    """A process's start, in ticks since the host's boot; None if there is no live one."""
    fields = stat_fields(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])  # starttime, the 22nd of all fields


class WorkerConfig(_Record):
    """A worker to start: on this machine, or through ``ssh`` (``user@host:port``) by the ``lab`` there.

    Without ``guests`` and ``memory`` (a size such as 8G) it offers what its host has.
    """

    ssh: str = ""
    lab: str = ""
    name: str = ""
    guests: int | None = None
    memory: str | None = None


class SupervisorConfig(_Record):
    """A fleet to run: its scheduler listens on ``host``, at ``port``, or at any free one for 0."""

    name: str
    key: str = Field(repr=False)
    key_file: str
    host: str
    port: int
    workers: tuple[WorkerConfig, ...]


class Report(_Record):
    """The state of the scheduler or a worker. ``refused``: the supervisor ends, and ``hint`` says what to do."""

    kind: Literal["refused", "listening", "joined", "failed"]
    text: str
    hint: str = ""


MOST_GUESTS = 1024
"""Limit for one worker."""


SIZES = "expected a size such as 8G or 1500M"
"""The expectation for a worker's memory in error messages."""


def room(guests: int | None, memory: str | None, share: int = 1) -> tuple[int, int]:
    """Guests in parallel, and MiB for all of them with their QEMU: the user's values, or an equal share of this host.

    Raises UsageError for an invalid size.
    """
    mib = (host_memory_mib() - 1024) // share if memory is None else size_mib(memory)  # 1 GiB is for all but guests
    if mib is None:
        raise UsageError(f"found {memory!r}; {SIZES}", where="--memory")
    return guests or max(1, len(os.sched_getaffinity(0)) // share), max(1, mib)


def worker_name(host: str) -> str:
    """A worker name from a host's: up to 64 letters, digits, dots, underscores and hyphens."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", host).lstrip("._-")[:64] or "worker"
