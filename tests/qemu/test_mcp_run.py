# SPDX-License-Identifier: GPL-2.0-only
"""Does a client of the protocol measure in a real guest, with the server as a process of its own?"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from command_line import PATIENCE
from fleet_processes import family, of_process
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent
from probe_repository import make_repository

from orchestrator.results.store import Store

pytestmark = pytest.mark.qemu

EXPERIMENT = """\
name: asked
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench, calls: 100, repeats: 2}
"""

CALLS = '#include "workload.h"\n\nvoid workload(void)\n{\n\tsys0(SYS_getppid);\n\tsys0(SYS_getppid);\n}\n'


def test_a_client_measures_and_reads_what_it_has_measured(tmp_path: Path) -> None:
    (tmp_path / "asked.yaml").write_text(EXPERIMENT)
    (tmp_path / "calls.c").write_text(CALLS)
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
            match = re.match(r"run (\S+)", measured)
            assert match is not None
            assert "1000 hits = 1000 calls" in measured
            assert [text for text in told if text is not None and text.endswith("kprobe/noop: ok")]
            (listed,) = json.loads(await answer(client, "list", what="runs"))["rows"]
            assert (listed["run"], listed["ok"], listed["failed"]) == (match[1], 2, 0)
            difference = await answer(client, "diff", before="latest:none", after="latest:kprobe", limit=3)
            assert "kprobe\\_int3\\_handler" in difference

            shown = {"subjects": ["kprobe"], "kernels": ["lab-i386-up"], "at_most": 1}
            calls = {"workload": "calls.c", "point": "__ia32_sys_getppid", "hits": 2, "cpu": "athlon"}
            costs = await answer(client, "cost", **shown, **calls)
            assert "instructions, allowed" in costs
            assert "athlon" in costs

    anyio.run(converse)


def test_a_client_measures_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    make_repository(tmp_path / "probes")
    ends = {"good": "./probes@HEAD~5", "bad": "./probes@HEAD~4"}

    async def converse() -> None:
        words = ["-m", "orchestrator.mcp_server", "--allow-run"]
        server = StdioServerParameters(command=sys.executable, args=words, env={**os.environ}, cwd=tmp_path)
        async with Client(server) as client:
            series = await client.call_tool(
                "series", {"span": "HEAD~5..HEAD~4", "tree": "probes", "config": "probes/own.yaml", "at_most": "5"}
            )
            (content,) = series.content
            assert isinstance(content, TextContent)
            assert not series.is_error, content.text
            assert "do one thing" in content.text
            bisected = await client.call_tool("bisect", {**ends, "config": "probes/own.yaml", "cell": "own.c.j2"})
            (content,) = bisected.content
            assert isinstance(content, TextContent)
            assert not bisected.is_error, content.text
            assert "do one thing" in content.text.partition("by symbol")[0]

    anyio.run(converse)


@pytest.mark.parametrize("by_signal", [False, True], ids=["its-client-goes", "SIGTERM"])
def test_a_server_that_ends_takes_its_guest_along(tmp_path: Path, by_signal: bool) -> None:
    (tmp_path / "asked.yaml").write_text(EXPERIMENT)
    lab = tmp_path / "lab"
    # Long enough that a busy host sees the first cell's end before the last one's.
    overrides = ["benchmark.calls=200000", "probes=[none, kprobe, jprobe, djprobe]"]
    run = {"config": "asked.yaml", "overrides": overrides}
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "run", "arguments": run, "_meta": {"progressToken": 1}}},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator.mcp_server", "--allow-run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "ORCHESTRATOR_LAB": str(lab)},
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in messages:
            print(json.dumps({"jsonrpc": "2.0", **message}), file=server.stdin, flush=True)
        told = next(line for line in server.stdout if "notifications/progress" in line)
        assert "none" in told
        guests = [child for child in family(server.pid) if of_process(child, "comm").startswith(b"qemu")]
        assert guests
        if by_signal:
            server.send_signal(signal.SIGTERM)
        else:
            server.stdin.close()
        assert server.wait(PATIENCE) == 0
        assert [guest for guest in guests if of_process(guest, "comm").startswith(b"qemu")] == []
    with Store.open(lab) as store:
        (entry,) = store.runs()
        assert store.unfinished_cells(entry.id)
