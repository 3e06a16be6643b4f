# SPDX-License-Identifier: GPL-2.0-only
"""Does a worker begin no boot that was ended, and send no more files of one than a client takes?"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn_records import cells
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from record_builders import cell
from staged_fleet import ROWS, jobs_of, record_of

from orchestrator.errors import LabError
from orchestrator.files import write_whole
from orchestrator.fleet.messages import LARGEST_FILE, LARGEST_MESSAGE, Body, FileMessage, StepLine, received, sent
from orchestrator.fleet.transfer import bundled
from orchestrator.fleet.worker import Answer, Boots, Versions
from orchestrator.guest.guest_group import Stopped
from orchestrator.run.benchmark_kind import PROFILES_FOLDER, Session
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted, Progress
from orchestrator.version import __version__

pytest.importorskip("distributed", reason="the extra fleet is not installed")


def test_a_boot_that_was_ended_before_it_began_does_not_begin(tmp_path: Path) -> None:
    boots = Boots(tmp_path)
    told: list[object] = []
    boots.abort("boot1-1")
    with pytest.raises(Stopped):
        boots.do("boot1-1", b"", told.append)
    assert told == []
    with pytest.raises(zlib.error):  # others do
        boots.do("boot1-2", b"no bundle", told.append)
    assert len(told) == 1


def leave(files: dict[str, int]) -> Callable[[Session], None]:
    """A boot that writes a profile of each of its cells, and then files of these sizes."""

    def do(session: Session) -> None:
        folder = session.task.directory
        (folder / PROFILES_FOLDER).mkdir(parents=True)
        for boot_cell in session.task.cells:
            (folder / PROFILES_FOLDER / f"{boot_cell.probe}.json").write_bytes(bytes(10))
            session.emit(CellRecorded(record_of(boot_cell)))
        for name, size in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(bytes(size))

    return do


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        ({"guest1.console": 40, "events/a.csv": 30}, ""),
        ({"guest1.console": 10, "guest2.console": 10, "events/a.csv": 10, "events/b.csv": 10}, "2 files, events/a.csv"),
        ({"guest1.console": 10, "guest1.qemu": 41}, "1 file, guest1.qemu"),
        ({"guest1.console": 40, "events/a.csv": 31}, "1 file, events/a.csv"),
    ],
    ids=["all fit", "too many", "too large", "too large together"],
)
def test_excess_output_of_a_boot_is_left_out_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, int], left_out: str
) -> None:
    for name, value in {"LARGEST_FILE": 40, "MOST_FILES": 5, "MOST_BYTES": 100}.items():
        monkeypatch.setattr(f"orchestrator.fleet.worker.{name}", value)
    monkeypatch.setattr("orchestrator.fleet.worker.run_boot", leave(files))
    (job,) = jobs_of(tmp_path, 1)
    task = replace(job.task, directory=Path("boot1"))
    told: list[dict[str, object]] = []
    Boots(tmp_path / "cache").do("boot1-1", bundled((task, job.artifacts), tmp_path).data, told.append)
    bodies = [received(message)[1] for message in told]
    sent = [body for body in bodies if isinstance(body, FileMessage)]
    assert len(sent) <= 5
    assert sum(len(message.content) for message in sent) <= 100
    assert [message.name for message in sent[:4]] == [*(f"profiles/{row}.json" for row in ROWS), "guest1.console"]
    warnings = [body.text for body in bodies if isinstance(body, Progress) and "left out" in body.text]
    if left_out:
        count, first = left_out.split(", ")
        (text,) = warnings
        assert text.startswith(f"warning: {count} of the boot left out, such as {first}: a fleet carries ")
    else:
        assert (warnings, len(sent)) == ([], 3 + len(files))


# Is a worker that is not like its client told apart, and by what?

HERE = Versions(project="0.9", code="0123456789abcdef", python="3.11", qemu="7.2.15")


OFFER: dict[str, Any] = {"name": "left", "versions": HERE.model_dump(), "guests": 2, "memory_mib": 4096}


def test_equal_versions_are_no_difference() -> None:
    assert HERE.difference(HERE.model_copy()) is None


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("project", "1.0", "it has this program at version 1.0, and this machine has 0.9"),
        ("code", "f" * 16, "it has this program with content ffffffffffffffff, and this machine has 0123456789abcdef"),
        ("python", "3.13", "it has Python 3.13, and this machine has 3.11"),
        ("qemu", "10.0.2", "it has QEMU 10.0.2, and this machine has 7.2.15"),
    ],
)
def test_each_other_version_is_told(field: str, value: str, told: str) -> None:
    assert HERE.difference(HERE.model_copy(update={field: value})) == told


def test_every_version_counts() -> None:
    for field in Versions.model_fields:
        assert HERE.difference(HERE.model_copy(update={field: "another"})) is not None


def test_the_versions_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.fleet.worker.qemu_version", lambda: "7.2.15")  # there may be no QEMU here
    here = Versions.here()
    assert (here.project, here.qemu) == (__version__, "7.2.15")
    assert here.python == ".".join(map(str, sys.version_info[:2]))
    assert here == Versions.here()


def test_an_offer_arrives() -> None:
    offer = Answer.model_validate(OFFER)
    assert Answer.model_validate_json(offer.model_dump_json()) == offer


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": "two words"},
        {"name": "\x1b[2J"},
        {"name": "x" * 101},
        {"guests": -1},
        {"guests": 1025},
        {"memory_mib": -1},
        {"memory_mib": 2**25},
        {"versions": {**OFFER["versions"], "qemu": "x" * 201}},
        {"versions": {**OFFER["versions"], "code": "not a digest"}},
        {"more": 1},
    ],
    ids=str,
)
def test_an_offer_is_bounded(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Answer.model_validate_json(json.dumps({**OFFER, **wrong}))


@given(st.text(st.characters()))
def test_any_other_text_is_no_offer(text: str) -> None:
    with pytest.raises(ValidationError):
        Answer.model_validate_json(text)


# Is what a worker sends received as it was, and is anything else refused with one kind of error?

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
    | st.builds(CellRecorded, cells(), st.booleans())
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
def test_messages_are_received_as_sent(body: Body) -> None:
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
        pytest.param(
            {"attempt": ATTEMPT, "kind": "guest1.console", "content": bytes(LARGEST_FILE + 1)}, id="too large a file"
        ),
    ],
    ids=lambda wrong: repr(wrong)[:60],
)
def test_malformed_message_is_refused(wrong: object) -> None:
    with pytest.raises(LabError, match="a worker sent an invalid message"):
        received(wrong)


@pytest.mark.parametrize("name", ["../x", "guest/../x", "a b", "\x1b[2J", "x" * 300, ""])
def test_a_guests_name_is_that_of_a_file(name: str) -> None:
    message = example(GuestBooted("guest1-pentium4", ("qemu",)))
    message["content"] = json.dumps({**json.loads(message["content"]), "name": name})
    with pytest.raises(LabError):
        received(message)


def test_a_record_that_the_contract_refuses_is_refused() -> None:
    message = example(CellRecorded(cell("kprobe"), is_compared=True))
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
