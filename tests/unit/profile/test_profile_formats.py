# SPDX-License-Identifier: GPL-2.0-only
"""Do the readers of other programs' formats find the stacks of a profile?

speedscope's published schema and Firefox Profiler's own reader are opt-in:
./lab test --nightly tests/unit/profile/test_profile_formats.py
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from stored_profiles import CALLS, profile, stacked

from orchestrator.errors import UsageError
from orchestrator.paths import cache_dir
from orchestrator.profile.printed.stack_formats import firefox_text, folded_text, pprof_bytes, speedscope_text
from orchestrator.profile.stored.cell_profile import CellProfile

STACKS = {"callbench": 10, "callbench;entry": 7, "callbench;entry;f": 5, "callbench;entry;f;h [lab]": 3}
MADE = stacked("a/b", STACKS)

# proto/profile.proto of github.com/google/pprof: name, number, type; a type of this file may be repeated.
_INT, _TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_INT64, descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "ValueType": [("type", 1, _INT, False), ("unit", 2, _INT, False)],
    "Sample": [("location_id", 1, _INT, True), ("value", 2, _INT, True)],
    "Line": [("function_id", 1, _INT, False)],
    "Location": [("id", 1, _INT, False), ("line", 4, "Line", True)],
    "Function": [("id", 1, _INT, False), ("name", 2, _INT, False)],
    "Profile": [
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, _TEXT, True),
        ("comment", 13, _INT, True),
    ],
}


def read_pprof(content: bytes) -> Any:
    """A profile, read by protobuf's library."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_repeated in fields:
            made = message.field.add(name=field, number=number, label=3 if is_repeated else 1)
            if isinstance(kind, str):
                made.type, made.type_name = made.TYPE_MESSAGE, f".perftools.profiles.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    read = message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))()
    read.ParseFromString(gzip.decompress(content))
    assert read.SerializeToString()
    return read


def pprof_stacks(content: bytes) -> Mapping[str, float]:
    read = read_pprof(content)
    functions = {one.id: read.string_table[one.name] for one in read.function}
    names = {one.id: functions[one.line[0].function_id] for one in read.location}
    return {";".join(names[one] for one in reversed(sample.location_id)): sample.value[0] for sample in read.sample}


def speedscope_stacks(text: str) -> Mapping[str, float]:
    read = json.loads(text)
    (sampled,) = read["profiles"]
    frames = [one["name"] for one in read["shared"]["frames"]]
    return {
        ";".join(frames[one] for one in stack): weight * CALLS
        for stack, weight in zip(sampled["samples"], sampled["weights"], strict=True)
    }


def firefox_stacks(text: str) -> Mapping[str, float]:
    read = json.loads(text)
    shared, (thread,) = read["shared"], read["threads"]
    for table in [*(one for one in shared.values() if isinstance(one, dict)), thread["samples"], thread["markers"]]:
        assert {len(one) for one in table.values() if isinstance(one, list)} == {table["length"]}
    names = [shared["stringArray"][shared["funcTable"]["name"][one]] for one in shared["frameTable"]["func"]]

    def stack(node: int | None) -> Iterator[str]:
        if node is not None:
            above = shared["stackTable"]["prefix"][node]
            assert above is None or above < node
            yield from stack(above)
            yield names[shared["stackTable"]["frame"][node]]

    samples = thread["samples"]
    return {
        ";".join(stack(node)): weight * CALLS for node, weight in zip(samples["stack"], samples["weight"], strict=True)
    }


FORMATS: list[tuple[Callable[[CellProfile], Any], Callable[[Any], Mapping[str, float]]]] = [
    (pprof_bytes, pprof_stacks),
    (speedscope_text, speedscope_stacks),
    (firefox_text, firefox_stacks),
]


@pytest.mark.parametrize(("write", "read"), FORMATS)
@given(
    stacks=st.dictionaries(
        st.lists(st.sampled_from(["f", "g", "h [lab]"]), max_size=5).map(lambda names: ";".join(["callbench", *names])),
        st.integers(1, 1 << 40),
        min_size=1,
    )
)
def test_a_file_has_all_stacks(write: Any, read: Any, stacks: dict[str, int]) -> None:
    found = read(write(stacked("a/b", stacks)))
    assert found == pytest.approx({names: count * CALLS for names, count in stacks.items()})


@pytest.mark.parametrize("write", [folded_text, *(write for write, _ in FORMATS)])
def test_a_profile_without_stacks_is_refused(write: Callable[[CellProfile], Any]) -> None:
    with pytest.raises(UsageError, match="has no stacks"):
        write(profile("a/b", {"f": 1}))


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_a_stack_that_an_empty_batch_executes_more_often_is_left_out(write: Any, read: Any) -> None:
    stacks = [("callbench", 14 * CALLS), ("callbench;entry", -2 * CALLS)]
    made = CellProfile.model_validate({**profile("a/b", {"callbench": 12}).model_dump(), "stacks": stacks})
    assert read(write(made)) == pytest.approx({"callbench": 14 * CALLS})


def test_pprof_counts_instructions_and_says_of_how_many_calls() -> None:
    read = read_pprof(pprof_bytes(MADE))
    (kind,) = read.sample_type
    assert [read.string_table[one] for one in (kind.type, kind.unit)] == ["instructions", "count"]
    assert [read.string_table[one] for one in read.comment] == ["a/b: 500 calls"]


# What https://www.speedscope.app/file-format-schema.json says of a sampled profile.
_SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "profiles", "shared"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": {"type": "object", "required": ["name"]}}},
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["endValue", "name", "samples", "startValue", "type", "unit", "weights"],
                "properties": {
                    "type": {"const": "sampled"},
                    "unit": {"enum": ["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]},
                    "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                    "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
                },
            },
        },
    },
}


def test_a_file_for_speedscope_satisfies_the_schema() -> None:
    jsonschema.validate(json.loads(speedscope_text(MADE)), _SPEEDSCOPE)


NPM, NODE = Path("/usr/bin/npm"), Path("/usr/bin/node")


def package(name: str, version: str) -> Path:
    """The folder of a package, which npm keeps in the lab's cache."""
    if not (NPM.exists() and NODE.exists()):
        pytest.skip(f"no npm to fetch {name} with: apt install npm")
    folder = cache_dir() / "profile-readers"
    if not (folder / "node_modules" / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(NPM), "install", "--prefix", str(folder), "--ignore-scripts", f"{name}@{version}"]
        environment = {**os.environ, "PATH": "/usr/bin:/bin"}
        fetched = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        if fetched.returncode != 0:
            pytest.skip(f"npm cannot fetch {name}: {fetched.stderr[-200:]}")
    return folder / "node_modules" / name


@pytest.mark.nightly("npm fetches speedscope")
def test_a_file_for_speedscope_satisfies_the_published_schema() -> None:
    schema = package("speedscope", "1") / "dist" / "release" / "file-format-schema.json"
    jsonschema.validate(json.loads(speedscope_text(MADE)), json.loads(schema.read_text()))


@pytest.mark.nightly("npm fetches Firefox Profiler's command line")
def test_firefox_profiler_lists_the_functions(tmp_path: Path) -> None:
    program = package("@firefox-devtools/profiler-cli", "0") / "dist" / "profiler-cli.js"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PROFILER_CLI_SESSION_DIR": str(tmp_path / "s")}
    file = tmp_path / "x.json"
    file.write_text(firefox_text(MADE))

    def profiler_cli(*arguments: str) -> str:
        command = [str(NODE), str(program), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path
        ).stdout

    profiler_cli("load", str(file))
    try:
        printed = profiler_cli("thread", "functions")
    finally:
        profiler_cli("stop")  # a daemon has the file
    for line in ("callbench - self: 10 (40.0%), total: 25", "h [lab] - self: 3 (12.0%), total: 3 (12.0%)"):
        assert line in printed


def test_go_s_pprof_lists_the_functions(tmp_path: Path) -> None:
    paths = sorted(Path("/usr/lib").glob("go-*/pkg/tool/linux_*/pprof"))
    if not paths:
        pytest.skip("no pprof: apt install golang-1.19-go")
    file = tmp_path / "x.pb.gz"
    file.write_bytes(pprof_bytes(MADE))
    command = [str(paths[-1]), "-divide_by", str(CALLS), "-top", "-nodefraction=0", str(file)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert ["10", "40.00%", "40.00%", "25", "100%", "callbench"] in lines
    assert ["3", "12.00%", "100%", "3", "12.00%", "h", "[lab]"] in lines
