# SPDX-License-Identifier: GPL-2.0-only
"""Is all that a console shows read, except for the kernel's messages, wherever they stand and however it comes?"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz.target import Feeder
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang, LabError
from orchestrator.guest.serial import SerialLine

END = b"<end>"
WORDS = st.text(alphabet="abc019+/= <>\n", max_size=60).map(str.encode)
MESSAGES = st.builds(
    lambda seconds, text: b"[%5d.%06d] %b\r\n" % (seconds, seconds % 1_000_000, text.encode()),
    st.integers(0, 99_999_999),
    st.text(alphabet="abc[]: 1.", max_size=30),
)


@given(st.data())
def test_the_kernels_messages_are_taken_out_and_nothing_else(data: st.DataObject) -> None:
    printed = b"".join(data.draw(st.lists(WORDS, max_size=5))) + b"."
    messages = data.draw(st.lists(MESSAGES, max_size=4))
    places = sorted(data.draw(st.integers(0, len(printed))) for _ in messages)
    parts = [printed[begin:end] for begin, end in pairwise([0, *places, len(printed)])]
    shown = parts[0] + b"".join(message + part for message, part in zip(messages, parts[1:], strict=True))
    theirs, ours = os.pipe()
    line = SerialLine(theirs)
    try:
        rest, read = shown + END, b""
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            os.write(ours, rest[:size])
            rest = rest[size:]
            read += line.read(0.0)
        assert read + line.read(0.0) == printed + END
    finally:
        line.close()
        os.close(ours)


def test_a_line_of_many_time_stamps_is_read_in_bounded_work() -> None:
    """Each 64 KiB took 0.26 s of a processor while the line's end was looked for behind each stamp."""
    stamps = b"[1.000000]" * 6000

    def read(_nothing: bytes) -> None:
        theirs, ours = os.pipe()
        line = SerialLine(theirs)
        try:
            for _ in range(40):
                os.write(ours, stamps)
                line.read(0.0)
                line.forget()
        finally:
            line.close()
            os.close(ours)

    Feeder(read, LabError).feed(b"")


def test_a_partial_message_is_not_kept_for_ever() -> None:
    theirs, ours = os.pipe()
    line = SerialLine(theirs)
    try:
        os.write(ours, b"[   12.345678] a line without an end " + b"x" * 20_000)
        read = b""
        deadline = time.monotonic() + 600
        while len(read) < 20_000 and time.monotonic() < deadline:
            read += line.read(0.1)
        assert read.endswith(b"x" * 20_000)
        os.write(ours, b"[not a message\n")
        assert line.read(1) == b"[not a message\n"
    finally:
        line.close()
        os.close(ours)


@pytest.mark.parametrize(
    ("printed", "limit"),
    [
        # More than can be read in the time: messages are removed, so nothing else ends the reading.
        (b"[   12.345678] again and again\r\n" * (2 << 20), 0.01),
        (b"noise without end " * (1 << 20), 600.0),
    ],
)
def test_a_console_that_is_flooded_is_not_read_to_its_end(printed: bytes, limit: float, tmp_path: Path) -> None:
    flood = tmp_path / "flood"
    flood.write_bytes(printed)
    line = SerialLine(os.open(flood, os.O_RDONLY))
    try:
        with pytest.raises(GuestHang):
            line.until(b"<never>", limit, Deadline(limit))
    finally:
        line.close()
