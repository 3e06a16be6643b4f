# SPDX-License-Identifier: GPL-2.0-only
"""Does a client of the protocol measure in a real guest, with the server as a process of its own?"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

pytestmark = pytest.mark.qemu

EXPERIMENT = """\
name: asked
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench, calls: 100, repeats: 2}
"""


def test_a_client_measures_and_reads_what_it_has_measured(tmp_path: Path) -> None:
    (tmp_path / "asked.yaml").write_text(EXPERIMENT)
    told: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def answer(client: Client, tool: str, **arguments: object) -> str:
        result = await client.call_tool(tool, arguments, progress_callback=tell)
        (content,) = result.content
        assert isinstance(content, TextContent)
        assert not result.is_error, content.text
        return content.text

    async def converse() -> None:
        environment = {**os.environ, "ORCHESTRATOR_LAB": str(tmp_path / "lab")}
        words = ["-m", "orchestrator.mcp_server", "--allow-run"]
        server = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=tmp_path)
        async with Client(server) as client:
            measured = await answer(client, "run", config="asked.yaml", overrides=["profile=[symbols]"])
            found = re.match(r"run (\S+)", measured)
            assert found is not None
            assert "hits = 200 calls" in measured or "1000 hits = 1000 calls" in measured
            assert [text for text in told if text is not None and text.endswith("kprobe/noop: ok")]
            (listed,) = json.loads(await answer(client, "list", what="runs"))
            assert (listed["run"], listed["ok"], listed["failed"]) == (found[1], 2, 0)
            difference = await answer(client, "diff", before="latest:none", after="latest:kprobe", limit=3)
            assert "kprobe\\_int3\\_handler" in difference

    anyio.run(converse)
