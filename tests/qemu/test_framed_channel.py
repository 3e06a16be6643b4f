# SPDX-License-Identifier: GPL-2.0-only
"""Does the framed channel keep the contract, and distinguish its own frames from a guest's?"""

from __future__ import annotations

import random
import struct

import pytest
from channel_contract import EVERY_BYTE, MEGABYTE, ChannelContract, FurtherContract

from orchestrator.errors import GuestError
from orchestrator.guest.framed import FrameType
from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg")

# Frames that would end a request, had they come by the right way.
FAKE_FRAMES = b"".join(struct.pack("<III", 4, kind, n) + b"\0\0\0\0" for kind in FrameType for n in range(8))


class TestFramedChannel(ChannelContract, FurtherContract):
    """The contract to the lab's own agent."""


def test_the_agents_own_words(shared_guest: Guest) -> None:
    result = shared_guest.run(["nonesuch", "argument"])
    assert (result.status, result.stdout, result.stderr) == (127, b"", b"agent: cannot execute nonesuch\n")
    result = shared_guest.run(["/etc/modules"])
    assert (result.status, result.stderr) == (126, b"agent: cannot execute /etc/modules\n")


def test_more_arguments_than_the_agent_takes(shared_guest: Guest) -> None:
    with pytest.raises(GuestError) as refused:
        shared_guest.run(["echo", *["x"] * 2000])
    assert refused.value.what == "the guest cannot start the command: argument list too long"
    assert shared_guest.run(["true"]).status == 0


def test_frames_in_the_output_are_output(shared_guest: Guest) -> None:
    shared_guest.put(FAKE_FRAMES, "/tmp/binary")
    result = shared_guest.run(["sh", "-c", "cat /tmp/binary; cat /tmp/binary >&2"])
    assert result.stdout == FAKE_FRAMES
    assert result.stderr == FAKE_FRAMES


# --- a noisy console ------------------------------------------------------------------------------


def test_a_flooded_console_corrupts_no_reply(shared_guest: Guest) -> None:
    flood = FAKE_FRAMES + b"\x1b[2J\x1b[6n\r\nsh-5.2# echo 1\r\n\x00\xff login: " + EVERY_BYTE
    shared_guest.put(flood, "/tmp/flood")
    script = "(while :; do cat /tmp/flood > /dev/console; echo noise > /dev/kmsg; done) > /dev/null 2>&1 & echo $!"
    flooder = shared_guest.succeed(["sh", "-c", script]).text.strip()
    before = shared_guest.console.length()
    for number in range(40):
        result = shared_guest.run(["sh", "-c", f"echo out {number}; echo err {number} >&2; exit {number}"])
        assert (result.status, result.stdout, result.stderr) == (
            number,
            f"out {number}\n".encode(),
            f"err {number}\n".encode(),
        )
    content = random.Random(0).randbytes(MEGABYTE // 4)
    shared_guest.put(content, "/tmp/quiet")
    assert shared_guest.get("/tmp/quiet") == content
    assert shared_guest.console.length() - before > 10 * len(flood)
    shared_guest.succeed(["kill", flooder])
