# SPDX-License-Identifier: GPL-2.0-only
"""What a client of the protocol may read, and what is refused: without a guest, in one process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp_types import TextContent
from record_builders import cell
from stored_profiles import store_run
from user_trees import git

from orchestrator import mcp_server
from orchestrator.library.lab import Lab
from orchestrator.library.measurements import Measurements
from orchestrator.mcp_server import inside, main, server_of_tools

READING = ["compare", "diff", "disasm", "list", "report"]


@contextmanager
def serving(*, allows_runs: bool = False) -> Iterator[MCPServer]:
    """The server, and a thread that does what takes long."""
    measurements = Measurements()
    thread = threading.Thread(target=measurements.serve)
    thread.start()
    try:
        yield server_of_tools(measurements, allows_runs=allows_runs)
    finally:
        measurements.end()
        thread.join()


def called(tool: str, *, allows_runs: bool = False, **arguments: Any) -> tuple[str, bool]:
    """The text of a tool's answer, and whether it is an error."""
    found: list[Any] = []

    async def call() -> None:
        async with Client(server) as client:
            found.append(await client.call_tool(tool, arguments))

    with serving(allows_runs=allows_runs) as server:
        anyio.run(call)
    (content,) = found[0].content
    assert isinstance(content, TextContent)
    return content.text, bool(found[0].is_error)


def refused(tool: str, **arguments: Any) -> str:
    """The message of a refused call, on a server that may measure: nothing of it is begun."""
    text, is_error = called(tool, allows_runs=True, **arguments)
    assert is_error, text
    assert text != f"Error executing tool {tool}"  # what an unexpected error becomes
    return text


@pytest.fixture
def runs(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two stored runs; the current folder has nothing."""
    found = [
        store_run(lab, tmp_path / f"run{number}", cell("none"), cell("kprobe", samples=[value], value=value))
        for number, value in enumerate((1036.0, 1040.0))
    ]
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return found


@pytest.mark.parametrize(
    ("allows_runs", "names"), [(False, READING), (True, sorted([*READING, "bisect", "cost", "run", "series"]))]
)
def test_measuring_has_to_be_allowed(lab: Path, allows_runs: bool, names: list[str]) -> None:
    async def listed() -> None:
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            assert sorted(tool.name for tool in tools) == names
            reading = [tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint]
            assert sorted(reading) == [name for name in READING if name != "disasm" or not allows_runs]

    with serving(allows_runs=allows_runs) as server:
        anyio.run(listed)


def test_stored_runs_are_listed_and_reported_and_compared(runs: list[str]) -> None:
    text, _ = called("list", what="runs")
    assert {load["run"] for load in json.loads(text)["rows"]} == {*runs}
    newest = json.loads(called("list", what="runs", limit=1)[0])
    assert ([one["run"] for one in newest["rows"]], newest["left_out"]) == ([Lab().runs()[0].id], 1)
    text, is_error = called("report", run=runs[0])
    assert not is_error
    assert text.startswith(f"run {runs[0]}")
    assert "| **overhead" in text
    text, is_error = called("compare", before=runs[0], after=runs[1])
    assert not is_error
    assert "| 1036 | 1040 | +4 |" in text


def test_an_empty_lab_has_lists_and_no_run(lab: Path) -> None:
    assert "runs" in json.loads(called("list")[0])
    assert json.loads(called("list", what="runs")[0]) == {"rows": [], "left_out": 0}
    assert "there is no run yet" in refused("report")
    assert not lab.exists()


@pytest.mark.parametrize(
    "name", ["/etc", "../run0", ".", "..", "~", "a/b:kprobe", "../x:y", "a:/../../x:y", "a\0b", "", "x" * 301]
)
def test_a_run_is_named_and_is_no_path(runs: list[str], name: str) -> None:
    for tool, arguments in (("report", {"run": name}), ("diff", {"before": "latest", "after": name})):
        text = refused(tool, **arguments)
        assert "directory" not in text
        assert "unknown run" in text or "at least 1 character" in text or "at most 300 characters" in text


def test_a_folder_of_the_current_one_is_no_run(runs: list[str], tmp_path: Path) -> None:
    Path("copied").symlink_to(tmp_path / "run0")
    for name in ("copied", "copied:kprobe"):
        assert "unknown run 'copied'" in refused("diff", before=name, after="latest:none")
        assert "unknown run 'copied'" in refused("compare", before="latest", after=name)
    assert "unknown run 'copied'" in refused("report", run="copied")
    Path("latest").write_text("")
    assert not called("report")[1]


@pytest.mark.parametrize("name", ["/etc/passwd", "../other.yaml", "~/x.yaml", "link.yaml"])
def test_a_file_is_in_the_current_folder(runs: list[str], tmp_path: Path, name: str) -> None:
    (tmp_path / "other.yaml").write_text("name: other\n")
    Path("link.yaml").symlink_to(tmp_path / "other.yaml")
    assert "start the server in the folder that has the files" in refused("run", config=name)
    assert "start the server in the folder that has the files" in refused("cost", subjects=[name])


def test_a_repository_is_in_the_current_folder_as_a_whole(runs: list[str], tmp_path: Path) -> None:
    Path("own.yaml").write_text("name: own\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "begin")
    elsewhere = "start the server in the folder that has the files"
    assert elsewhere in refused("series", span="HEAD~1..HEAD", config="own.yaml")
    assert elsewhere in refused("series", span="HEAD~1..HEAD", config="own.yaml", tree="..")
    for commit in ("./@HEAD", "../@HEAD", f"{tmp_path}@HEAD"):
        assert elsewhere in refused("bisect", good=commit, bad="./@HEAD", config="own.yaml")


def test_the_paths_in_an_experiment_are_in_the_current_folder_too(runs: list[str]) -> None:
    for link in ("link", "link.bt"):
        Path(link).symlink_to("../elsewhere")
    Path("own.yaml").write_text(
        "name: own\nkernels: [debian-686]\nmachines: [{cpu: pentium4}]\nprobes: [none, ../run0/x.c]\n"
        "benchmark: {name: gtodbench}\n"
    )
    assert "start the server in the folder" in refused("run", config="own.yaml")
    assert "start the server in the folder" in refused("run", config="own.yaml", overrides=["probes=[none, /etc/x.c]"])
    for program in ("tool: ../run0/x -v", "tool: ~/x", "/etc/x.bt 7", "tool: ./link -v", "./link.bt 7"):
        overrides = [f"probes=[none, '{program}']"]
        assert "start the server in the folder" in refused("run", config="own.yaml", overrides=overrides)
        assert "start the server in the folder" in refused("cost", subjects=[program])
    assert "start the server in the folder" in refused("run", config="own.yaml", overrides=["kernels=[~/linux]"])
    assert "start the server in the folder" in refused("disasm", kernel="mine=/boot/linux", function="vfs_read")
    assert "no such file" in refused("run", config="none.yaml")
    assert inside("own.yaml") == os.fspath(Path("own.yaml").absolute())


def test_an_answer_has_a_limited_size(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = called("report")
    every = json.loads(called("list", what="cpus")[0])
    monkeypatch.setattr(mcp_server, "LARGEST", 300)
    *lines, rest = called("report")[0].splitlines()
    assert lines
    assert lines == whole.splitlines()[: len(lines)]
    assert rest.endswith("more characters")
    found = json.loads(called("list", what="cpus")[0])
    assert found["rows"] == every["rows"][: len(found["rows"])] != []
    assert found["left_out"] == len(every["rows"]) - len(found["rows"]) > 0


def test_another_measurement_is_refused_while_one_runs(lab: Path) -> None:
    measurements, told = Measurements(), []
    release = threading.Event()
    thread = threading.Thread(target=measurements.serve)
    thread.start()

    async def first() -> None:
        told.append(await asyncio.wrap_future(measurements.begin(lambda: "first" if release.wait() else "")))

    async def converse() -> None:
        async with anyio.create_task_group() as group, Client(server) as client:
            group.start_soon(first)
            await anyio.lowlevel.checkpoint()
            for tool, arguments in (
                ("run", {"config": "x.yaml"}),
                ("cost", {"subjects": ["kprobe"]}),
                ("disasm", {"kernel": "debian-686", "function": "vfs_read"}),
            ):
                result = await client.call_tool(tool, arguments)
                assert "a measurement is running" in str(result.content)
            assert not (await client.call_tool("list", {})).is_error
            release.set()

    server = server_of_tools(measurements, allows_runs=True)
    try:
        asyncio.run(converse())
        assert told == ["first"]
    finally:
        release.set()
        measurements.end()
        thread.join()


@pytest.mark.parametrize("folder", ["/", "~", "home/.."])
def test_a_client_may_not_have_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["--allow-run", str(Path(folder).expanduser())])
    assert caught.value.code == 2


def test_without_the_extra_the_server_says_what_to_install() -> None:
    program = "import sys; sys.modules['mcp'] = None; import orchestrator.mcp_server"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install 'probe-lab[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("allowed", [[], ["--allow-run"]])
def test_the_server_ends_with_its_client(lab: Path, tmp_path: Path, allowed: list[str]) -> None:
    words = [sys.executable, "-m", "orchestrator.mcp_server", *allowed, str(tmp_path)]
    done = subprocess.run(words, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("list", {"what": "rus"}, "did you mean 'runs'?"),
        ("list", {"what": 3}, "valid string"),
        ("compare", {"limit": 0}, "greater than or equal to 1"),
        ("compare", {"only": ["x"] * 33}, "at most 32 items"),
        ("run", {}, "Field required"),
        ("run", {"config": "a\0b"}, "match pattern"),
        ("run", {"config": "own.yaml", "overrides": ["kernels=[/a\0b]"]}, "match pattern"),
        ("run", {"config": "loop"}, "leads to itself|too many levels"),
        ("run", {"config": "n" * 300}, "name too long"),
        ("cost", {"subjects": ["/a\0b"]}, "match pattern"),
        ("disasm", {"kernel": "/a\0b", "function": "vfs_read"}, "match pattern"),
        ("cost", {"subjects": []}, "at least 1 item"),
        ("cost", {"subjects": ["kprobe"], "at_most": -1}, "greater than or equal to 0"),
        ("cost", {"subjects": ["kprobe"], "kernels": ["nothing"]}, "unknown kernel 'nothing'"),
        ("disasm", {"kernel": "debian-amd64", "function": "vfs_read+5"}, "expected a kernel function"),
    ],
)
def test_a_wrong_argument_is_refused(runs: list[str], tool: str, arguments: dict[str, Any], why: str) -> None:
    Path("loop").symlink_to("loop")
    assert re.search(why, refused(tool, **arguments))


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("list", {"what": "calls", "limits": 1}, "unknown argument 'limits'; allowed: what, limit; did you mean"),
        ("list", {"name": "calls"}, "unknown argument 'name'; allowed: what, limit"),
        ("list", {"what": "calls", "": 1}, "unknown argument ''"),
        ("list", {"what": "calls", "What": "runs"}, "unknown argument 'What'"),
        ("report", {"format": "json"}, "unknown argument 'format'; allowed: run"),
        ("compare", {"first": "latest", "runs": []}, "unknown argument 'first'.*unknown argument 'runs'"),
        ("diff", {"before": "latest", "after": "latest", "cell": "kprobe"}, "unknown argument 'cell'"),
        ("disasm", {"kernel": "debian-686", "function": "vfs_read", "context": 1}, "unknown argument 'context'"),
        ("run", {"config": "own.yaml", "jobs": 2}, "unknown argument 'jobs'"),
        ("run", {"config": "own.yaml", "set": ["probes=[none]"]}, "unknown argument 'set'"),
        ("cost", {"subjects": ["kprobe"], "budget": 1}, "unknown argument 'budget'"),
        ("cost", {"subjects": ["kprobe"], "against": "HEAD~1"}, "unknown argument 'against'"),
        ("cost", {"subjects": ["kprobe"], "atmost": 1}, "did you mean 'at_most'?"),
        ("series", {"span": "a..b", "config": "x", "at-most": "5"}, "did you mean 'at_most'?"),
        ("cost", {"subjects": ["kprobe"], "at-most": 1}, "did you mean 'at_most'?"),
        ("cost", {"names": ["kprobe"], "context": 1}, "unknown argument 'names'"),
    ],
)
def test_an_argument_that_a_tool_does_not_have_is_refused(
    runs: list[str], tool: str, arguments: dict[str, Any], why: str
) -> None:
    assert re.search(why.replace("?", "[?]"), refused(tool, **arguments), re.DOTALL)


def test_a_schema_allows_no_other_arguments(lab: Path) -> None:
    async def listed() -> None:
        async with Client(server) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.input_schema["additionalProperties"] is False, tool.name
                assert "context" not in tool.input_schema["properties"]

    for allows_runs in (False, True):
        with serving(allows_runs=allows_runs) as server:
            anyio.run(listed)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"cpu": "atlon64"}, "did you mean 'athlon64'"),
        ({"cpu": "pentium4"}, "64-bit and CPU .pentium4. is 32-bit"),
        ({"call": "read", "workload": "calls.c"}, "call and workload exclude each other"),
        ({"hits": 2}, "hits: is of calls of your own only"),
        ({"workload": "calls.c", "hits": 0}, "greater than or equal to 1"),
        ({"workload": "../calls.c"}, "start the server in the folder that has the files"),
        ({"workload": "cals.c"}, "this file does not exist\nhint: did you mean .*/calls.c"),
        ({"at_most": "inf"}, "found .inf.; expected"),
    ],
)
def test_the_machine_and_the_calls_of_a_cost_are_checked(runs: list[str], arguments: dict[str, Any], why: str) -> None:
    Path("calls.c").write_text("")
    assert re.search(why, refused("cost", subjects=["kprobe"], **arguments))


def test_what_would_be_fetched_says_how(runs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    text, is_error = called("disasm", kernel="debian-686", function="vfs_read")
    assert is_error
    assert "start the server with --allow-run" in text
