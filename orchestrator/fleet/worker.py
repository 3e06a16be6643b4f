# SPDX-License-Identifier: GPL-2.0-only
"""A worker of a fleet: Dask's worker that does boots, and what the client asks it to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker, get_worker

from orchestrator.errors import HostError, LabError
from orchestrator.fleet.boots import Boots
from orchestrator.fleet.facts import Offer, Versions
from orchestrator.fleet.parcel import Reference
from orchestrator.fleet.settings import Unlisted
from orchestrator.paths import cache_dir

_PLUGIN = "lab-boots"
_UNDER_WAY = ("executing", "long-running")


class BootPlugin(WorkerPlugin):
    """The boots of a worker, ended when Dask forgets their tasks: a cancelled future stops no thread by itself."""

    name = _PLUGIN

    def __init__(self, name: str, guests: int, memory_mib: int) -> None:
        self._given = (name, guests, memory_mib)

    def setup(self, worker: Worker) -> None:
        self.boots = Boots(cache_dir())

    def offer(self) -> Offer:
        name, guests, memory = self._given
        return Offer(name=name, versions=Versions.here(), guests=guests, memory_mib=memory)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if start in _UNDER_WAY and finish not in ("memory", "error"):
            self.boots.abort(str(key))

    def teardown(self, worker: Worker) -> None:
        self.boots.abort_all()


class FleetWorker(Unlisted, Worker):
    """Dask's worker without its HTTP server. It ends its guests first, not after the half minute that Dask waits."""

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        plugin = self.plugins.get(_PLUGIN)
        if plugin is not None and hasattr(plugin, "boots"):
            plugin.boots.abort_all()
        return await super().close(*args, **kwargs)


def _plugin(worker: Worker) -> BootPlugin:
    plugin = worker.plugins[_PLUGIN]
    assert isinstance(plugin, BootPlugin)
    return plugin


def do_boot(attempt: str, topic: str, data: bytes) -> dict[str, object]:
    """On a worker, as a task: do a boot, which is sent by its messages on a topic; how it ended."""
    worker = get_worker()
    return _plugin(worker).boots.do(attempt, data, lambda message: worker.log_event(topic, message))


def offer() -> str:
    """On a worker, as a task: what it says of itself, as JSON; or why it cannot say it."""
    try:
        return _plugin(get_worker()).offer().model_dump_json()
    except LabError as error:
        return f"error: {error.what}"


async def missing(wanted: Sequence[str], dask_worker: Worker) -> list[str]:
    """On a worker: those of the references, each as JSON, whose files have to be sent."""
    references = [Reference.model_validate_json(one) for one in wanted]
    found = await asyncio.to_thread(_plugin(dask_worker).boots.warehouse.missing, references)
    return [one.model_dump_json() for one in found]


async def receive(reference: str, offset: int, piece: bytes, sender: str, dask_worker: Worker) -> str:
    """On a worker: take a piece of a file; empty, or what its host lacks. Raises LabError for what is no such piece."""
    warehouse = _plugin(dask_worker).boots.warehouse
    try:
        await asyncio.to_thread(warehouse.receive, Reference.model_validate_json(reference), offset, piece, sender)
    except HostError as error:
        return error.what
    return ""
