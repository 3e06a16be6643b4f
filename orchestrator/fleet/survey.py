# SPDX-License-Identifier: GPL-2.0-only
"""What do all workers of a fleet say of themselves? Versions, room, cache, and guests under way."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed.worker import Worker
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import LabError
from orchestrator.fleet.client import connected
from orchestrator.fleet.facts import Offer
from orchestrator.fleet.silence import silence_dask
from orchestrator.fleet.target import Target
from orchestrator.fleet.worker import BootPlugin
from orchestrator.paths import cache_dir

_BOOTS = ("boot", "calibration-", "check-")
"""What the names of tasks begin with that take a guest's place."""


class Answer(BaseModel):
    """What a worker says: its offer, or why it has none; its host's name; its cache, with MB that are free."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    offer: Offer | None = None
    problem: str = Field(default="", max_length=4000)
    host: str = Field(default="", max_length=300)
    cache: str = Field(default="", max_length=5000)
    is_writable: bool = False
    free_mb: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Surveyed:
    """A worker as the scheduler knows it, and what it answered."""

    address: str
    name: str
    running: int
    """Guests under way."""
    answer: Answer


def survey(fleet: Target) -> list[Surveyed]:
    """Ask every worker, by their names. Raises HostError where the scheduler does not answer."""
    silence_dask()
    with connected(fleet.address, fleet.key) as client:
        known = client.scheduler_info(n_workers=-1)["workers"]
        at = client.processing()
        answers: Mapping[str, Any] = client.run(examine, on_error="return") if known else {}
    found = [
        Surveyed(address, str(facts.get("name"))[:100], _boots(at.get(address, ())), _answer(answers.get(address)))
        for address, facts in known.items()
    ]
    return sorted(found, key=lambda one: (one.name, one.address))


async def examine(dask_worker: Worker) -> str:
    """On a worker: what it says, as JSON."""
    return (await asyncio.to_thread(_examined, dask_worker)).model_dump_json()


def _examined(dask_worker: Worker) -> Answer:
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if os.access(folder, os.F_OK))
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "cache": str(cache),
        "is_writable": os.access(existing, os.W_OK | os.X_OK),
        "free_mb": shutil.disk_usage(existing).free // 1_000_000,
    }
    plugin = next(one for one in dask_worker.plugins.values() if isinstance(one, BootPlugin))
    try:
        return Answer(offer=plugin.offer(), **facts)
    except LabError as error:
        return Answer(problem=error.what, **facts)


def _answer(said: object) -> Answer:
    if said is None:
        return Answer(problem="it has not answered")
    if isinstance(said, BaseException):
        return Answer(problem=f"it cannot answer: {' '.join(str(said).split())[:300] or type(said).__name__}")
    try:
        return Answer.model_validate_json(str(said))
    except ValidationError:
        return Answer(problem="it says what is no answer: its program is of another version")


def _boots(tasks: object) -> int:
    return sum(str(task).startswith(_BOOTS) for task in tasks) if isinstance(tasks, list | tuple | set) else 0
