# SPDX-License-Identifier: GPL-2.0-only
"""Is what a worker sends received as it was, and is anything else refused with one kind of error?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, cells

from orchestrator.errors import LabError
from orchestrator.files import write_whole
from orchestrator.fleet.worker import LARGEST_FILE, LARGEST_MESSAGE, Body, FileMessage, StepLine, received, sent
from orchestrator.run.boot import CellBegan, Event, GuestBooted, Outcome, Progress

ATTEMPT = "boot3-7-7f32"
LINES = st.text(max_size=60)
EVENTS: st.SearchStrategy[Event] = (
    st.builds(Progress, LINES)
    | st.builds(CellBegan, cells().map(lambda record: record.id))
    | st.builds(
        GuestBooted,
        name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,40}", fullmatch=True),
        command_line=st.lists(LINES, max_size=5).map(tuple),
        work=st.dictionaries(LINES, LINES, max_size=3),
        restored_from=st.none() | st.from_regex(r"[0-9a-f]{1,64}", fullmatch=True),
    )
    | st.builds(Outcome, cells(), st.booleans())
)
BODIES = (
    EVENTS
    | st.builds(StepLine, st.text(max_size=60))
    | st.builds(FileMessage, name=LINES, content=st.binary(max_size=200))
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20) | st.binary(),
    lambda values: (
        st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), values, max_size=4)
    ),
    max_leaves=8,
)
"""What msgpack can carry, of any shape; texts may be ones that UTF-8 cannot have."""

WORDS = st.sampled_from(["attempt", "text", "name", "content", "kind", "record", "is_compared", "cell"])


def example(event: Event) -> dict[str, Any]:
    return dict(sent(ATTEMPT, event))


@given(body=BODIES)
def test_what_is_sent_is_received(body: Body) -> None:
    assert received(sent(ATTEMPT, body)) == (ATTEMPT, body)


@given(body=BODIES)
def test_it_survives_the_way_through_dask(body: Body) -> None:
    protocol = pytest.importorskip("distributed.protocol", reason="the extra fleet is not installed")
    assert received(protocol.loads(protocol.dumps(sent(ATTEMPT, body)))) == (ATTEMPT, body)


def received_or_refused(message: object) -> None:
    """Received as something that can be sent again, or refused by an error that can be shown."""
    try:
        got = received(message)
    except LabError as error:
        str(error).encode()
        return
    assert received(sent(*got)) == got


@given(VALUES | st.dictionaries(WORDS, VALUES, max_size=5))
def test_anything_else_is_refused(message: object) -> None:
    received_or_refused(message)


@given(body=BODIES, key=WORDS, value=VALUES)
def test_a_message_with_another_value_is_refused(body: Body, key: str, value: object) -> None:
    received_or_refused({**sent(ATTEMPT, body), key: value})


@given(body=EVENTS, key=WORDS, value=VALUES)
def test_a_text_with_another_value_is_refused(body: Event, key: str, value: object) -> None:
    message = example(body)
    fields = json.loads(message["content"])
    try:
        message["content"] = json.dumps({**fields, key: value})
    except TypeError:
        message["content"] = repr({**fields, key: value})
    received_or_refused(message)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"",
        [],
        {},
        {"attempt": ATTEMPT},
        {"attempt": 7, "kind": "Progress", "content": '{"text": "x"}'},
        {"attempt": ATTEMPT, "kind": "Progress", "content": 7},
        {"attempt": ATTEMPT, "kind": "Progress", "content": "{}"},
        {"attempt": ATTEMPT, "kind": "Withdrawn", "content": '{"text": "x"}'},
        {"attempt": ATTEMPT, "kind": "CellBegan", "content": '{"cell": "../../etc/passwd"}'},
        {"attempt": ATTEMPT, "kind": "Progress", "content": "[" * 100_000},
        {"attempt": ATTEMPT, "kind": "Progress", "content": '{"text": "\\ud800"}'},
        {"attempt": ATTEMPT, "kind": "Progress", "content": "\ud800"},
        {"attempt": ATTEMPT, "kind": "Progress", "content": " " * (LARGEST_MESSAGE + 1)},
        {"attempt": ATTEMPT, "kind": "guest1.console", "content": bytes(LARGEST_FILE + 1)},
    ],
    ids=lambda wrong: repr(wrong)[:60],
)
def test_what_is_no_message_is_refused(wrong: object) -> None:
    with pytest.raises(LabError, match="a worker sent what is no message"):
        received(wrong)


@pytest.mark.parametrize("name", ["../x", "guest/../x", "a b", "\x1b[2J", "x" * 300, ""])
def test_a_guests_name_is_that_of_a_file(name: str) -> None:
    message = example(GuestBooted("guest1-pentium4", ("qemu",)))
    message["content"] = json.dumps({**json.loads(message["content"]), "name": name})
    with pytest.raises(LabError):
        received(message)


def test_a_record_that_the_contract_refuses_is_refused() -> None:
    message = example(Outcome(cell("kprobe"), is_compared=True))
    fields = json.loads(message["content"])
    for wrong in ({"value": 1.0}, {"status": "good"}, {"evidence": None}, {"samples": [-1e400]}):
        message["content"] = json.dumps({**fields, "record": {**fields["record"], **wrong}})
        with pytest.raises(LabError):
            received(message)


@pytest.mark.parametrize(
    "name",
    ["guest1-pentium4-debian-686.console", "events/pentium4.kprobe.csv", "profiles/a,b=1@2+3.json", "x" * 250],
)
def test_a_file_has_a_name_in_the_boots_folder(tmp_path: Path, name: str) -> None:
    kept = FileMessage(name=name, content=b"x").checked_name()
    file = tmp_path / kept
    file.parent.mkdir(exist_ok=True)
    write_whole(file, b"x")
    assert file.read_bytes() == b"x"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../lab.sqlite",
        "events/../../lab.sqlite",
        "events/",
        "events",
        "profiles",
        "other/x",
        "events/a/b",
        ".guest1.console.new",
        "a\0b",
        "a\nb",
        "guest1.console\n",
        "-rf",
        "x" * 251,
        "guest1.cønsole",
    ],
)
def test_a_files_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="a worker sent a file called"):
        FileMessage(name=name, content=b"").checked_name()


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["..", "events", "profiles", "/", ".", "x", "-", "y" * 248])).map("".join)
)
def test_every_file_can_be_written_in_its_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("boot")
    for taken in ("events", "profiles"):  # as other files of the boot make them
        (folder / taken).mkdir()
    try:
        file = folder / FileMessage(name=name, content=b"x").checked_name()
    except LabError:
        return
    write_whole(file, b"x")
    assert file.resolve().is_relative_to(folder.resolve())
    assert file.is_file()
