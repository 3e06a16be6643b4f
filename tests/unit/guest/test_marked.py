# SPDX-License-Identifier: GPL-2.0-only
"""Is a command's output found whole, however it comes in pieces, and nothing else taken for it?"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.guest.channel import CommandOutput, Stream
from orchestrator.guest.marked_output import MarkedCommand

TOKEN = re.compile(rb"set -- ([0-9a-f]{32}) ")


def marked() -> tuple[MarkedCommand, bytes]:
    command = MarkedCommand(["a"], CommandOutput())
    token = TOKEN.match(command.script)
    assert token is not None
    return command, token[1]


@given(st.data())
def test_output_is_found_whole_in_any_pieces(data: st.DataObject) -> None:
    command, token = marked()
    content = data.draw(st.binary(max_size=60).map(lambda part: part + token[: data.draw(st.integers(0, 31))]))
    junk, late = data.draw(st.binary(max_size=40)), data.draw(st.binary(max_size=40))
    text = junk + token + b" 77\n" + content + token + b" 3\n" + late
    for stream in Stream:
        rest = text
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            command.feed(stream, rest[:size])
            rest = rest[size:]
    assert command.ended
    assert (command.process, command.status) == (77, 3)
    result = command.output.result(["a"], 3)
    assert (result.stdout, result.stderr) == (content, content)


def test_a_token_in_the_output_holds_nothing_back() -> None:
    received: list[bytes] = []
    command = MarkedCommand(["a"], CommandOutput(lambda stream, data: received.append(data)))
    token = TOKEN.match(command.script)
    assert token is not None
    printed = [
        token[1] + b" 77\n",
        token[1] + b" of ours",
        b"\nand more\n",
        token[1] + b" 1234567890\n",
        token[1] + b"\n",
    ]
    for data in printed:
        command.feed(Stream.STDOUT, data)
    assert b"".join(received) == b"".join(printed[1:])
    assert not command.ended


def test_output_is_given_on_as_it_comes() -> None:
    received: list[bytes] = []
    command = MarkedCommand(["a"], CommandOutput(lambda stream, data: received.append(data)))
    token = TOKEN.match(command.script)
    assert token is not None
    command.feed(Stream.STDOUT, token[1] + b" 77\nfirst\n")
    assert received == [b"first\n"]
    assert not command.ended
    assert command.status is None
