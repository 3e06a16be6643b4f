# SPDX-License-Identifier: GPL-2.0-only
"""The processes of a fleet: a worker with its nanny, and the keeper of a fleet on this machine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from orchestrator.fleet.keys import security_of
from orchestrator.fleet.settings import set_up_dask
from orchestrator.guest.host_memory import host_memory_mib
from orchestrator.scratch import ScratchFolder

_RESERVED_MIB = 1024
"""Of the host's memory, for all but guests."""


@dataclass(frozen=True)
class Room:
    """What a worker offers: guests at once, and MiB for all of them with their QEMU."""

    guests: int
    memory_mib: int

    @classmethod
    def of_host(cls, share: int = 1) -> Room:
        """An equal share of this host: a guest for each processor that we may use."""
        cores = len(os.sched_getaffinity(0))
        return cls(max(1, cores // share), max(1, (host_memory_mib() - _RESERVED_MIB) // share))


def usual_name() -> str:
    """A worker's name where none is given: the host's."""
    kept = [
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in socket.gethostname()
    ]
    return "".join(kept).lstrip("._-")[:64] or "worker"


async def serve_worker(scheduler: str, key: str, name: str, room: Room, host: str | None) -> None:
    """Be a worker of the fleet whose scheduler is at that address, until it ends; ``host`` is what to listen on."""
    set_up_dask()
    from distributed.nanny import Nanny

    from orchestrator.fleet.worker import BootPlugin, FleetWorker

    with ScratchFolder("orchestrator-worker-") as folder:
        nanny = Nanny(
            scheduler,
            nthreads=room.guests + 1,  # one to answer questions while guests run
            name=name,
            host=host,
            security=security_of(key),
            worker_class=FleetWorker,
            plugins=(BootPlugin(name, room.guests, room.memory_mib),),
            memory_limit=0,
            local_directory=str(folder),
            death_timeout=30,
        )
        async with nanny:
            await nanny.finished()


async def serve_scheduler(host: str, port: int, key: str) -> None:
    """Be a scheduler until it is stopped."""
    set_up_dask()
    from orchestrator.fleet.scheduler import started_scheduler

    scheduler = await started_scheduler(host, port, security_of(key))
    print(scheduler.address, flush=True)
    await scheduler.finished()  # type: ignore[no-untyped-call]
