# SPDX-License-Identifier: GPL-2.0-only
"""A worker with its nanny, as a part of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.fleet.keys import security_of
from orchestrator.fleet.room import Room
from orchestrator.fleet.settings import set_up_dask
from orchestrator.fleet.state import WORKER_FOLDER
from orchestrator.fleet.target import address_towards
from orchestrator.scratch import ScratchFolder

if TYPE_CHECKING:
    from distributed.nanny import Nanny

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
