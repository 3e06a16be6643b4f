# SPDX-License-Identifier: GPL-2.0-only
"""A fleet's scheduler in a process of its own: called with the key's file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from orchestrator.fleet.key import read_key, security_of
from orchestrator.fleet.scheduler import FleetScheduler
from orchestrator.fleet.target import set_up_dask


async def serve(key: str) -> None:
    set_up_dask()
    scheduler = await FleetScheduler("127.0.0.1", 0, security_of(key))
    print(scheduler.address, flush=True)
    await scheduler.finished()


if __name__ == "__main__":
    asyncio.run(serve(read_key(Path(sys.argv[1]))))
