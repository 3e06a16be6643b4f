# SPDX-License-Identifier: GPL-2.0-only
"""Does the channel find the right reply, whatever an agent (or who pretends to be one) sends, and always end?"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestConnectionLost, GuestError, GuestHang
from orchestrator.guest import channel as channels
from orchestrator.guest import framed
from orchestrator.guest.channel import Stream
from orchestrator.guest.framed import PAYLOAD_MAX, PROTOCOL, FramedChannel, FrameType

PATIENCE = 5.0
HEADER = struct.Struct("<III")


def frame(kind: int, request: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, request) + payload


def word(number: int) -> bytes:
    return struct.pack("<I", number & 0xFFFFFFFF)


class Agent:
    """The guest's end of a channel: reads frames as a good agent does, and sends what its script sends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def read(self) -> tuple[int, int, bytes]:
        length, kind, request = HEADER.unpack(self._exactly(HEADER.size))
        return kind, request, self._exactly(length)

    def send(self, *frames: bytes) -> None:
        self.connection.sendall(b"".join(frames))

    def hang_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


Script = Callable[[Agent], None]


@contextlib.contextmanager
def channel_to(script: Script) -> Iterator[FramedChannel]:
    """A channel whose other end plays ``script`` in a thread; what goes wrong there fails the test."""
    ours, theirs = socket.socketpair()
    failures: list[BaseException] = []

    def play() -> None:
        try:
            script(Agent(theirs))
        except (AssertionError, ValueError) as error:
            failures.append(error)
        except (OSError, EOFError):
            pass  # the host hung up

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    channel = FramedChannel(ours)
    try:
        yield channel
    finally:
        channel.close()
        thread.join(PATIENCE)
        theirs.close()
    assert not failures, failures
    assert not thread.is_alive()


def replying(*replies: tuple[int, bytes]) -> Script:
    """An agent that answers its first request so."""

    def script(agent: Agent) -> None:
        _, request, _ = agent.read()
        agent.send(*(frame(kind, request, payload) for kind, payload in replies))
        with contextlib.suppress(EOFError):
            agent.read()

    return script


def soon() -> Deadline:
    return Deadline(PATIENCE)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed, "DEATH_LIMIT", 0.2)


# --- the agent's first word ----------------------------------------------------------------------


def test_our_agent_is_recognised() -> None:
    with channel_to(lambda agent: agent.send(frame(FrameType.HELLO, 0, word(PROTOCOL)))) as channel:
        channel.wait_for_agent(soon())


@pytest.mark.parametrize(
    "first",
    [
        frame(FrameType.HELLO, 0, word(PROTOCOL + 1)),
        frame(FrameType.HELLO, 0),
        frame(FrameType.OK, 0, word(PROTOCOL)),
        b"Linux version 6.1.0",
    ],
)
def test_another_agent_is_refused(first: bytes) -> None:
    with channel_to(lambda agent: agent.send(first)) as channel, pytest.raises(GuestConnectionLost):
        channel.wait_for_agent(soon())


def test_a_missing_agent_is_a_hang() -> None:
    with channel_to(lambda agent: None) as channel, pytest.raises(GuestHang):
        channel.wait_for_agent(Deadline(0.1))


# --- commands ------------------------------------------------------------------------------------


def test_streams_and_status_are_kept_apart() -> None:
    replies = [
        (FrameType.STDOUT, b"out\0"),
        (FrameType.STDERR, b"err"),
        (FrameType.STDOUT, frame(FrameType.EXIT, 1, word(0))),
        (FrameType.EXIT, word(3 << 8)),
    ]
    with channel_to(replying(*replies)) as channel:
        result = channel.run(["a", "b c"], time_limit=PATIENCE)
    assert result.argv == ("a", "b c")
    assert (result.status, result.stdout, result.stderr) == (3, b"out\0" + frame(FrameType.EXIT, 1, word(0)), b"err")
    assert result.text.startswith("out\0")


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (255 << 8, 255), (9, 137), (11 | 0x80, 139)])
def test_statuses_are_a_shell_s(status: int, expected: int) -> None:
    with channel_to(replying((FrameType.EXIT, word(status)))) as channel:
        assert channel.run(["a"], time_limit=PATIENCE).status == expected


def test_a_command_travels_whole() -> None:
    seen: list[tuple[int, int, bytes]] = []

    def script(agent: Agent) -> None:
        seen.append(agent.read())
        agent.send(frame(FrameType.EXIT, 1, word(0)))

    # The last is what the command line of a program has for a byte that is no UTF-8.
    words = ["sh", "", "a b", "ä", "$x\n", "\udcff"]
    with channel_to(script) as channel:
        channel.run(words, time_limit=PATIENCE)
    assert seen == [(FrameType.EXEC, 1, b"/\0sh\0\0a b\0\xc3\xa4\0$x\n\0\xff\0")]


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["a", "x" * PAYLOAD_MAX]])
def test_what_cannot_travel_is_refused_before_anything_is_sent(argv: list[str]) -> None:
    def script(agent: Agent) -> None:
        assert agent.read() == (FrameType.PING, 1, b"")
        agent.send(frame(FrameType.OK, 1))

    with channel_to(script) as channel:
        with pytest.raises(GuestError):
            channel.run(argv, time_limit=PATIENCE)
        channel.ping(PATIENCE)


def test_a_listener_gets_the_output_as_it_comes() -> None:
    received: list[tuple[Stream, bytes]] = []
    went_on = threading.Event()

    def script(agent: Agent) -> None:
        agent.read()
        agent.send(frame(FrameType.STDOUT, 1, b"first"))
        assert went_on.wait(PATIENCE)
        agent.send(frame(FrameType.STDERR, 1, b"second"), frame(FrameType.EXIT, 1, word(0)))

    def listener(kind: Stream, data: bytes) -> None:
        received.append((kind, data))
        went_on.set()

    with channel_to(script) as channel:
        result = channel.run(["a"], time_limit=PATIENCE, listener=listener)
    assert received == [(Stream.STDOUT, b"first"), (Stream.STDERR, b"second")]
    assert (result.stdout, result.stderr) == (b"", b"")


def test_frames_of_an_earlier_request_are_passed_over() -> None:
    def script(agent: Agent) -> None:
        agent.read()
        late = [
            frame(FrameType.STDOUT, 0, b"late"),
            frame(FrameType.EXIT, 0, word(1 << 8)),
            frame(FrameType.ERROR, 7, word(2)),
        ]
        agent.send(*late, frame(FrameType.STDOUT, 1, b"mine"), frame(FrameType.EXIT, 1, word(0)))
        agent.read()
        agent.send(frame(FrameType.EXIT, 1, word(0)), frame(FrameType.DATA, 1, b"late"), frame(FrameType.OK, 2))

    with channel_to(script) as channel:
        result = channel.run(["a"], time_limit=PATIENCE)
        assert (result.status, result.stdout) == (0, b"mine")
        assert channel.get("/x", time_limit=PATIENCE) == b""


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((FrameType.ERROR, word(12)), "cannot allocate memory"),
        ((FrameType.ERROR, word(-12)), "unknown error"),
        ((FrameType.ERROR, word(1 << 31)), "unknown error"),
        ((FrameType.ERROR, b"xx"), "unexpected reply"),
        ((FrameType.OK, b""), "unexpected reply"),
        ((FrameType.HELLO, word(1)), "unexpected reply"),
        ((9999, b""), "unexpected reply"),
    ],
)
def test_a_command_that_cannot_start(reply: tuple[int, bytes], reason: str) -> None:
    with channel_to(replying(reply)) as channel, pytest.raises(GuestError, match=f"cannot start .*{reason}"):
        channel.run(["a"], time_limit=PATIENCE)


def test_too_much_output_ends_the_command_and_not_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "OUTPUT_MAX", 1 << 20)

    def script(agent: Agent) -> None:
        agent.read()
        for _ in range(17):
            agent.send(frame(FrameType.STDOUT, 1, bytes(PAYLOAD_MAX)))
        assert agent.read() == (FrameType.KILL, 1, b"")
        agent.send(frame(FrameType.STDOUT, 1, b"rest"), frame(FrameType.EXIT, 1, word(9)))
        assert agent.read()[:2] == (FrameType.PING, 2)
        agent.send(frame(FrameType.OK, 2))

    with channel_to(script) as channel:
        with pytest.raises(GuestError, match="more than 1 MiB"):
            channel.run(["yes"], time_limit=PATIENCE)
        channel.ping(PATIENCE)


# --- time limits ---------------------------------------------------------------------------------


def test_a_command_over_its_time_is_killed_and_the_channel_goes_on() -> None:
    def script(agent: Agent) -> None:
        agent.read()
        agent.send(frame(FrameType.STDOUT, 1, b"so far\n"), frame(FrameType.STDERR, 1, b"\nbut\n"))
        assert agent.read() == (FrameType.KILL, 1, b"")
        agent.send(frame(FrameType.STDOUT, 1, b"last words"), frame(FrameType.EXIT, 1, word(9)))
        assert agent.read()[:2] == (FrameType.PING, 2)
        agent.send(frame(FrameType.OK, 2))

    with channel_to(script) as channel:
        with pytest.raises(CommandTimeout, match=r"sleep did not end within 0\.2 s") as caught:
            channel.run(["sleep", "9"], time_limit=0.2)
        assert caught.value.detail == ("so far", "but")
        channel.ping(PATIENCE)


def test_a_time_limit_in_the_middle_of_a_frame_loses_nothing() -> None:
    whole = frame(FrameType.STDOUT, 1, b"x" * 1000)

    def script(agent: Agent) -> None:
        agent.read()
        agent.send(whole[:500])
        assert agent.read()[0] == FrameType.KILL
        agent.send(whole[500:], frame(FrameType.EXIT, 1, word(9)))
        agent.read()
        agent.send(frame(FrameType.OK, 2))

    with channel_to(script) as channel:
        with pytest.raises(CommandTimeout):
            channel.run(["a"], time_limit=0.1)
        channel.ping(PATIENCE)


@pytest.mark.usefixtures("hurried")
def test_a_guest_that_does_not_even_answer_a_kill() -> None:
    def script(agent: Agent) -> None:
        agent.read()
        assert agent.read()[0] == FrameType.KILL
        with contextlib.suppress(EOFError):
            agent.read()

    with channel_to(script) as channel, pytest.raises(GuestHang, match="does not answer any more"):
        channel.run(["a"], time_limit=0.1)


talkative: list[tuple[FrameType, Callable[[FramedChannel], object]]] = [
    (FrameType.STDOUT, lambda channel: channel.run(["yes"], time_limit=0.2, listener=lambda kind, data: None)),
    (FrameType.DATA, lambda channel: channel.get("/dev/zero", time_limit=0.2, largest=1000)),
]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("kind", "call"), talkative)
@pytest.mark.parametrize("request_number", [1, 0])
def test_a_guest_that_never_stops_talking_is_given_up(
    kind: FrameType, call: Callable[[FramedChannel], object], request_number: int
) -> None:
    def script(agent: Agent) -> None:
        while True:
            agent.send(frame(kind, request_number, b"y\n" * 2000))

    with channel_to(script) as channel, pytest.raises(GuestHang):
        call(channel)


def test_a_guest_that_takes_nothing_hangs() -> None:
    done = threading.Event()

    def script(agent: Agent) -> None:
        assert done.wait(PATIENCE)

    with channel_to(script) as channel:
        with pytest.raises(GuestHang):
            channel.put(bytes(8 << 20), "/x", mode=0o644, time_limit=0.2)
        done.set()


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 3 * PAYLOAD_MAX])
@pytest.mark.parametrize("from_file", [False, True])
def test_a_file_arrives_whole(size: int, from_file: bool, tmp_path: Path) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "file").write_bytes(content)
    arrived: list[bytes] = []

    def script(agent: Agent) -> None:
        assert agent.read() == (FrameType.PUT, 1, word(0o755) + b"/a b\0")
        while True:
            kind, request, payload = agent.read()
            assert (kind, request) == (FrameType.DATA, 1)
            if not payload:
                break
            arrived.append(payload)
        agent.send(frame(FrameType.OK, 1))

    with channel_to(script) as channel:
        channel.put(tmp_path / "file" if from_file else content, "/a b", mode=0o755, time_limit=PATIENCE)
    assert b"".join(arrived) == content


def test_a_file_that_cannot_be_written_has_a_reason() -> None:
    def script(agent: Agent) -> None:
        while agent.read()[2]:
            pass
        agent.send(frame(FrameType.ERROR, 1, word(28)))

    with channel_to(script) as channel, pytest.raises(GuestError, match="cannot write /x: no space left on device"):
        channel.put(b"content", "/x", mode=0o644, time_limit=PATIENCE)


def test_a_file_is_read_whole_or_not_at_all() -> None:
    def script(agent: Agent) -> None:
        for request in (1, 2):
            assert agent.read() == (FrameType.GET, request, b"/x\0")
            agent.send(
                frame(FrameType.DATA, request, b"abc"),
                frame(FrameType.DATA, request, b"de"),
                frame(FrameType.OK, request),
            )
        assert agent.read() == (FrameType.KILL, 2, b"")  # it might have been endless
        assert agent.read() == (FrameType.GET, 3, b"/y\0")
        agent.send(frame(FrameType.DATA, 3, b"abc"), frame(FrameType.ERROR, 3, word(5)))

    with channel_to(script) as channel:
        assert channel.get("/x", time_limit=PATIENCE, largest=5) == b"abcde"
        with pytest.raises(GuestError, match="it has more than 4 bytes"):
            channel.get("/x", time_limit=PATIENCE, largest=4)
        with pytest.raises(GuestError, match="cannot read /y: input/output error"):
            channel.get("/y", time_limit=PATIENCE)


@pytest.mark.parametrize("path", ["", "x", "./x", "/a\0b", "/" + "x" * 4000])
def test_paths_are_absolute_and_whole(path: str) -> None:
    with channel_to(lambda agent: None) as channel:
        with pytest.raises(GuestError, match="not an absolute path"):
            channel.get(path, time_limit=PATIENCE)
        with pytest.raises(GuestError, match="not an absolute path"):
            channel.put(b"", path, mode=0o644, time_limit=PATIENCE)


# --- broken and hostile guests -------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", b"\0", frame(FrameType.STDOUT, 1, b"abc")[:-1], frame(FrameType.STDOUT, 1, b"abc")]
)
def test_a_connection_lost_within_a_reply(sent: bytes) -> None:
    def script(agent: Agent) -> None:
        agent.read()
        agent.send(sent)
        agent.hang_up()

    with channel_to(script) as channel:
        with pytest.raises(GuestConnectionLost):
            channel.run(["a"], time_limit=PATIENCE)
        with pytest.raises(GuestConnectionLost):
            channel.ping(PATIENCE)


@pytest.mark.parametrize("length", [PAYLOAD_MAX + 1, 0xFFFFFFFF])
def test_a_frame_that_is_too_long_is_not_waited_for(length: int) -> None:
    def script(agent: Agent) -> None:
        agent.read()
        agent.send(HEADER.pack(length, FrameType.STDOUT, 1))

    with channel_to(script) as channel, pytest.raises(GuestConnectionLost, match="too long"):
        channel.run(["a"], time_limit=PATIENCE)


frames = st.builds(
    frame,
    st.one_of(st.sampled_from(list(FrameType)), st.integers(0, 2**32 - 1)),
    st.sampled_from([0, 1, 2, 2**32 - 1]),
    st.binary(max_size=12),
)
hostile = st.one_of(st.binary(max_size=200), st.lists(frames, max_size=12).map(b"".join))
calls: list[Callable[[FramedChannel], object]] = [
    lambda channel: channel.wait_for_agent(soon()),
    lambda channel: channel.ping(PATIENCE),
    lambda channel: channel.run(["a"], time_limit=PATIENCE),
    lambda channel: channel.get("/x", time_limit=PATIENCE, largest=20),
    lambda channel: channel.put(b"x", "/x", mode=0o644, time_limit=PATIENCE),
]


@given(hostile, st.sampled_from(calls))
def test_a_hostile_guest_gets_an_answer_or_a_guest_error(sent: bytes, call: Callable[[FramedChannel], object]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        channel = FramedChannel(ours)
        with contextlib.suppress(GuestError):
            call(channel)
        channel.close()
