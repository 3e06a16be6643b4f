# SPDX-License-Identifier: GPL-2.0-only
"""Does the serial channel get along with shells on a real terminal, and with what a console shows before?"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pseudo_terminals import PSEUDO_TERMINALS

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestConnectionLost, GuestError, GuestHang
from orchestrator.guest.serial import SerialChannel

LOGIN = Path(__file__).with_name("fake_login.sh")
SHELLS = ["dash -i", "bash --norc -i", "busybox ash -i"]

Console = Callable[..., SerialChannel]

pytestmark = PSEUDO_TERMINALS


@pytest.fixture
def console() -> Iterator[Console]:
    """Starts programs on terminals of their own, with our channel at the other end."""
    started: list[tuple[int, SerialChannel]] = []

    def start(*argv: str) -> SerialChannel:
        process, descriptor = pty.fork()
        if process == 0:
            os.execvp(argv[0], argv)
        channel = SerialChannel(descriptor)
        started.append((process, channel))
        return channel

    yield start
    for process, channel in started:
        channel.close()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def soon() -> Deadline:
    return Deadline(30)


def check(channel: SerialChannel, folder: Path) -> None:
    """A bit of everything."""
    result = channel.run(["sh", "-c", "echo out; echo err >&2; exit 3"], time_limit=20)
    assert (result.status, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    content = bytes(range(256)) * 300
    channel.put(content, str(folder / "a file"), mode=0o640, time_limit=60)
    assert (folder / "a file").read_bytes() == content
    assert (folder / "a file").stat().st_mode & 0o777 == 0o640
    assert channel.get(str(folder / "a file"), time_limit=60) == content
    assert channel.run(["sh", "-c", "kill -INT $$"], time_limit=20).status == 130


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_that_is_there_already(console: Console, shell: str, tmp_path: Path) -> None:
    argv = shlex.split(shell)
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    channel = console(*argv)
    channel.login("root", None, soon())
    check(channel, tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_login_with_a_password(console: Console, shell: str, tmp_path: Path) -> None:
    if shutil.which(shlex.split(shell)[0]) is None:
        pytest.skip(f"{shell} is not installed")
    channel = console("sh", str(LOGIN), shell, "a secret")
    channel.login("root", "a secret", soon())
    check(channel, tmp_path)


def test_a_login_without_a_password(console: Console, tmp_path: Path) -> None:
    channel = console("sh", str(LOGIN), "sh -i", "")
    channel.login("root", None, soon())
    check(channel, tmp_path)


def test_a_wrong_password_is_reported(console: Console) -> None:
    with pytest.raises(GuestError, match="refuses root with this password"):
        console("sh", str(LOGIN), "sh -i", "a secret").login("root", "another", soon())


def test_a_missing_password_is_reported(console: Console) -> None:
    with pytest.raises(GuestError, match="wants a password for root"):
        console("sh", str(LOGIN), "sh -i", "a secret").login("root", None, soon())


def test_a_user_who_is_logged_out_at_once_is_not_logged_in_for_ever(console: Console) -> None:
    with pytest.raises(GuestError, match="asks for a login again after root"):
        console("sh", str(LOGIN), "true", "").login("root", None, soon())


def test_a_console_that_shows_nothing_is_given_up(console: Console) -> None:
    with pytest.raises(GuestHang, match="neither a login prompt nor a shell"):
        console("sleep", "100").login("root", None, Deadline(1))


def test_a_console_that_ends_is_reported(console: Console) -> None:
    with pytest.raises(GuestConnectionLost):
        console("true").login("root", None, soon())


def test_a_command_over_its_time_is_killed_and_the_channel_goes_on(console: Console) -> None:
    channel = console("sh", "-i")
    channel.login("root", None, soon())
    with pytest.raises(CommandTimeout):
        channel.run(["yes"], time_limit=0.5)
    assert channel.run(["echo", "alive"], time_limit=20).text == "alive\n"


@pytest.mark.parametrize("word", [b"stdout", b"piece", b"done"])
def test_a_line_of_a_reply_that_is_broken_apart_loses_nothing(word: bytes) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execvp("sh", ["sh", "-i"])
    ours_end, theirs = socket.socketpair()
    broken: list[bytes] = []
    threads = [
        threading.Thread(target=pass_on, args=(terminal, theirs.fileno(), word, broken)),
        threading.Thread(target=pass_on, args=(theirs.fileno(), terminal, b"", [])),
    ]
    for thread in threads:
        thread.start()
    channel = SerialChannel(ours_end)
    try:
        channel.login("root", None, soon())
        result = channel.run(["seq", "1", "30000"], time_limit=30)
    finally:
        channel.close()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        for thread in threads:
            thread.join()
        theirs.close()
        os.close(terminal)
    assert broken
    assert (result.status, result.stderr) == (0, b"")
    assert result.stdout == "".join(f"{number}\n" for number in range(1, 30001)).encode()


def pass_on(source: int, target: int, word: bytes, broken: list[bytes]) -> None:
    """Pass a console's bytes on; another line stands in the first lines of replies that have this word."""
    with contextlib.suppress(OSError):  # the terminal's other end is gone
        while data := os.read(source, 1 << 16):
            head = re.search(rb"<[0-9a-f]{16} [1-9]\d* " + word, data) if word and len(broken) < 4 else None
            if head is not None:
                broken.append(head[0])
                data = data[: head.end()] + b"somebody else: hello\n" + data[head.end() :]
            while data:
                data = data[os.write(target, data) :]


def test_nothing_stays_behind(console: Console) -> None:
    before = ours()
    channel = console("sh", "-i")
    channel.login("root", None, soon())
    assert len(ours() - before) == 1
    channel.close()
    deadline = Deadline(60)
    while ours() - before and deadline.left():
        time.sleep(0.1)
    assert not ours() - before


def test_nothing_stays_behind_a_console_that_is_hung_up(console: Console) -> None:
    before = ours()
    channel = console("sh", "-i")
    channel.login("root", None, soon())
    with pytest.raises(CommandTimeout):
        channel.run(["sleep", "333"], time_limit=0.2)
    channel._line.close()
    deadline = Deadline(60)
    while ours() - before and deadline.left():
        time.sleep(0.1)
    assert not ours() - before


def ours() -> set[Path]:
    """The folders that consoles are served from."""
    return {path for folder in ("/run", "/tmp") for path in Path(folder).glob("orchestrator-serial.*")}


def test_answers_that_were_sent_in_advance_keep_nobody_beyond_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    channel = SerialChannel(ours)
    with theirs:
        answers = (f"<{channel._token} {number} damaged>\n<{channel._token} {number} end>\n" for number in range(9))
        theirs.sendall("".join(answers).encode())
        with pytest.raises(GuestHang, match="the guest gave no answer in time"):
            channel._ask("add 0 0 0", Deadline(0.0))
    channel._line.close()
