# SPDX-License-Identifier: GPL-2.0-only
"""Does the command channel carry exactly what it was given, whatever a guest does?"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import CommandFailed, CommandTimeout, GuestError
from orchestrator.guest.channel import Stream
from orchestrator.guest.framed import Frame
from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="tcg")

MEGABYTE = 1 << 20
EVERY_BYTE = bytes(range(256))
# Frames that would end a request, had they come by the right way.
FAKE_FRAMES = b"".join(struct.pack("<III", 4, kind, n) + b"\0\0\0\0" for kind in Frame for n in range(8))


# --- commands -------------------------------------------------------------------------------------


def test_status_and_both_streams_come_apart(guest: Guest) -> None:
    result = guest.run(["sh", "-c", "echo out; echo err >&2; echo more; exit 3"])
    assert (result.status, result.stdout, result.stderr) == (3, b"out\nmore\n", b"err\n")
    assert result.argv == ("sh", "-c", "echo out; echo err >&2; echo more; exit 3")


@pytest.mark.parametrize(("signal", "status"), [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
def test_death_by_signal_is_told_as_a_shell_does(guest: Guest, signal: str, status: int) -> None:
    assert guest.run(["sh", "-c", f"kill -{signal} $$"]).status == status


def test_a_program_that_is_not_there(guest: Guest) -> None:
    result = guest.run(["nonesuch", "argument"])
    assert (result.status, result.stdout, result.stderr) == (127, b"", b"agent: cannot execute nonesuch\n")


def test_a_program_that_may_not_be_executed(guest: Guest) -> None:
    result = guest.run(["/etc/modules"])
    assert (result.status, result.stderr) == (126, b"agent: cannot execute /etc/modules\n")


def test_a_command_that_has_to_succeed(guest: Guest) -> None:
    assert guest.succeed(["echo", "fine"]).text == "fine\n"
    with pytest.raises(CommandFailed, match=r"^`sh -c echo no >&2; exit 5` ended with status 5") as failed:
        guest.succeed(["sh", "-c", "echo no >&2; exit 5"])
    assert failed.value.detail == ("no",)


def test_standard_input_is_empty(guest: Guest) -> None:
    assert guest.run(["cat"], time_limit=10).stdout == b""


@pytest.mark.parametrize(
    "argument", ["", " ", "two words", "a\nb\n", "'\"$HOME`id`\\", "Grüße, 日本語", "-n", "\x01\x7f", "x" * 60_000]
)
def test_arguments_arrive_as_they_are(guest: Guest, argument: str) -> None:
    result = guest.run(["sh", "-c", 'printf "%s|" "$#" "$@"', "sh", argument, "end"])
    assert result.stdout.decode() == f"2|{argument}|end|"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["echo", "x" * 70_000], "the command line is longer than 65536 bytes"),
        (["echo", *["x"] * 2000], "the guest cannot start the command: argument list too long"),
        (["echo", "a\0b"], "a command needs a program and cannot hold NUL characters"),
        ([], "a command needs a program and cannot hold NUL characters"),
    ],
)
def test_a_command_line_that_cannot_be(guest: Guest, argv: list[str], reason: str) -> None:
    with pytest.raises(GuestError) as refused:
        guest.run(argv)
    assert refused.value.what == reason
    assert guest.run(["true"]).status == 0


# --- output ---------------------------------------------------------------------------------------


def test_binary_output_is_untouched(guest: Guest) -> None:
    content = EVERY_BYTE * 100 + FAKE_FRAMES
    guest.put(content, "/tmp/binary")
    result = guest.run(["sh", "-c", "cat /tmp/binary; cat /tmp/binary >&2"])
    assert result.stdout == content
    assert result.stderr == content


def test_long_output_is_whole(guest: Guest) -> None:
    expected = "".join(f"{number}\n" for number in range(1, 200_001)).encode()
    result = guest.run(["sh", "-c", "seq 1 200000 & seq 1 200000 >&2; wait"])
    assert result.stdout == expected
    assert result.stderr == expected


def test_a_listener_hears_output_as_it_comes(guest: Guest) -> None:
    heard: list[tuple[Stream, bytes, float]] = []
    result = guest.run(
        ["sh", "-c", "echo first; sleep 1; echo second >&2"],
        listener=lambda kind, data: heard.append((kind, data, time.monotonic())),
    )
    assert [(kind, data) for kind, data, _ in heard] == [(Stream.STDOUT, b"first\n"), (Stream.STDERR, b"second\n")]
    assert heard[1][2] - heard[0][2] > 0.5
    assert (result.status, result.stdout, result.stderr) == (0, b"", b"")


def test_a_process_left_behind_with_the_pipe_holds_nobody_up(guest: Guest) -> None:
    began = time.monotonic()
    result = guest.run(["sh", "-c", "sleep 1000 & echo $!"])
    assert time.monotonic() - began < 10
    left_behind = result.text.strip()
    assert guest.run(["kill", left_behind]).status == 0


# --- time limits ----------------------------------------------------------------------------------


def test_a_command_that_takes_too_long_is_killed_with_its_children(guest: Guest) -> None:
    with pytest.raises(CommandTimeout) as timeout:
        guest.run(["sh", "-c", "echo last words; sleep 333 & sleep 333"], time_limit=0.5)
    assert timeout.value.what == "sh did not end within 0.5 s and was killed"
    assert timeout.value.detail == ("last words",)
    assert guest.run(["pidof", "sleep"]).stdout == b""
    assert guest.run(["echo", "alive"]).text == "alive\n"


def test_a_command_that_prints_for_ever_is_killed(guest: Guest) -> None:
    with pytest.raises(CommandTimeout):
        guest.run(["yes"], time_limit=0.5)
    assert guest.run(["echo", "alive"]).text == "alive\n"


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 10 * MEGABYTE])
def test_a_file_comes_back_as_it_went(guest: Guest, tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    source = tmp_path / "file"
    source.write_bytes(content)
    guest.put(source, "/tmp/from-file")
    guest.put(content, "/tmp/from-bytes")
    guest.succeed(["cmp", "/tmp/from-file", "/tmp/from-bytes"])
    assert guest.get("/tmp/from-file") == content
    guest.succeed(["rm", "/tmp/from-file", "/tmp/from-bytes"])


def test_a_file_gets_its_mode_and_replaces_another(guest: Guest) -> None:
    guest.put(b"something much longer than the script", "/tmp/script")
    guest.put(b"#!/bin/sh\necho script\n", "/tmp/script", mode=0o750)
    assert guest.succeed(["stat", "-c", "%a", "/tmp/script"]).text == "750\n"
    assert guest.succeed(["/tmp/script"]).text == "script\n"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/nonesuch/file", "cannot write /nonesuch/file: no such file or directory"),
        ("/tmp", "cannot write /tmp: is a directory"),
        ("/dev/full", "cannot write /dev/full: no space left on device"),
        ("relative", "'relative' is no absolute path in the guest"),
    ],
)
def test_a_file_that_cannot_be_written(guest: Guest, target: str, reason: str) -> None:
    with pytest.raises(GuestError) as refused:
        guest.put(EVERY_BYTE * 1024, target)
    assert refused.value.what == reason
    assert guest.run(["true"]).status == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("/tmp/nonesuch", "cannot read /tmp/nonesuch: no such file or directory"),
        ("/tmp", "cannot read /tmp: is a directory"),
        ("/tmp/a\0b", r"'/tmp/a\x00b' is no absolute path in the guest"),
    ],
)
def test_a_file_that_cannot_be_read(guest: Guest, source: str, reason: str) -> None:
    with pytest.raises(GuestError) as refused:
        guest.get(source)
    assert refused.value.what == reason
    assert guest.run(["true"]).status == 0


# --- a noisy console ------------------------------------------------------------------------------


def test_a_flooded_console_corrupts_no_reply(guest: Guest) -> None:
    flood = FAKE_FRAMES + b"\x1b[2J\x1b[6n\r\nsh-5.2# echo 1\r\n\x00\xff login: " + EVERY_BYTE
    guest.put(flood, "/tmp/flood")
    script = "(while :; do cat /tmp/flood > /dev/console; echo noise > /dev/kmsg; done) > /dev/null 2>&1 & echo $!"
    flooder = guest.succeed(["sh", "-c", script]).text.strip()
    before = guest.console.length()
    for number in range(100):
        result = guest.run(["sh", "-c", f"echo out {number}; echo err {number} >&2; exit {number}"])
        assert (result.status, result.stdout, result.stderr) == (
            number,
            f"out {number}\n".encode(),
            f"err {number}\n".encode(),
        )
    content = random.Random(0).randbytes(MEGABYTE)
    guest.put(content, "/tmp/quiet")
    assert guest.get("/tmp/quiet") == content
    assert guest.console.length() - before > 10 * len(flood)
    guest.succeed(["kill", flooder])


# --- speed ----------------------------------------------------------------------------------------


def best(attempts: int, action: Callable[[], object]) -> float:
    """Seconds of the quickest attempt: the others ran beside something else."""
    times = []
    for _ in range(attempts):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def test_a_round_trip_takes_less_than_ten_milliseconds(guest: Guest) -> None:
    assert best(50, lambda: guest.succeed(["true"])) < 0.010


def test_files_travel_at_more_than_ten_megabytes_a_second(guest: Guest) -> None:
    content = bytes(10 * MEGABYTE)
    assert best(4, lambda: guest.put(content, "/tmp/speed")) < 1.0
    assert best(4, lambda: guest.get("/tmp/speed")) < 1.0
    guest.succeed(["rm", "/tmp/speed"])
