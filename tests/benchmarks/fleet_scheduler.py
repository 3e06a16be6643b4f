# SPDX-License-Identifier: GPL-2.0-only
"""A fleet's scheduler in a process of its own: called with the key's file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from orchestrator.fleet.keys import read_key
from orchestrator.fleet.serve import serve_scheduler

if __name__ == "__main__":
    asyncio.run(serve_scheduler("127.0.0.1", 0, read_key(Path(sys.argv[1]))))
