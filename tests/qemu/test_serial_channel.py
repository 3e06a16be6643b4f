# SPDX-License-Identifier: GPL-2.0-only
"""Does the channel over a console keep the contract, whatever the kernel prints into the middle of it?"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from channel_contract import MEGABYTE, ChannelContract, FurtherContract
from elsewhere import ELSEWHERE

from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.guest(kernel="lab-i386-up", timing="tcg", image="debian-i386", channel="serial")

KERNEL_NOISE = """
while :; do
    echo "<4>a warning of the kernel's, $RANDOM, long enough to stand in the middle of something" >/dev/kmsg
    sleep 0.05
done
"""
OTHER_NOISE = """
while :; do
    printf 'somebody else: \\033[31m%s\\033[0m\\n' "$RANDOM" >/dev/ttyS0
    sleep 0.5
done
"""


@ELSEWHERE
class TestSerialChannel(ChannelContract, FurtherContract):
    """The contract over a console, which carries some ten thousand bytes a second on a busy host."""

    LARGE = MEGABYTE // 8
    TRANSFER_LIMIT = 300.0
    SHORT_LIMIT = 3.0


@pytest.fixture
def noise(shared_guest: Guest, request: pytest.FixtureRequest) -> Iterator[None]:
    """A guest whose console somebody else prints on as well."""
    process = shared_guest.succeed(["sh", "-c", f"({request.param}) >/dev/null 2>&1 & echo $!"]).text.strip()
    yield
    shared_guest.succeed(["sh", "-c", f"kill {process}"])


@pytest.mark.usefixtures("noise")
@pytest.mark.parametrize(
    "noise",
    [pytest.param(KERNEL_NOISE, id="kernel"), pytest.param(OTHER_NOISE, id="others", marks=ELSEWHERE)],
    indirect=True,
)
def test_other_output_on_the_console_damages_nothing(shared_guest: Guest) -> None:
    before = shared_guest.console.length()
    for number in range(5):
        result = shared_guest.run(["sh", "-c", f"echo out {number}; echo err {number} >&2; exit {number}"])
        assert (result.status, result.stdout, result.stderr) == (
            number,
            f"out {number}\n".encode(),
            f"err {number}\n".encode(),
        )
    content = random.Random(0).randbytes(20_000)  # more than goes at once
    shared_guest.put(content, "/tmp/noisy", time_limit=300)
    assert shared_guest.get("/tmp/noisy", time_limit=300) == content
    assert (
        b"warning of the kernel's" in shared_guest.console.path.read_bytes()[before:]
        or b"somebody else" in (shared_guest.console.path.read_bytes()[before:])
    )


def test_nothing_is_left_in_the_guest(shared_guest: Guest) -> None:
    shared_guest.run(["seq", "1", "15000"])
    shared_guest.run(["true"])
    left = shared_guest.succeed(["sh", "-c", "ls /run/orchestrator-serial.*"]).text.split()
    # What the listing itself takes is there: its script, its pipes.
    assert not [name for name in left if name.startswith("out.") and name not in ("out.part", "out.0", "out.1")]


@pytest.mark.nightly("moves 10 MB each way over a serial console: ten minutes")
def test_ten_megabytes_each_way(shared_guest: Guest) -> None:
    content = random.Random(1).randbytes(10 * MEGABYTE)
    began = time.monotonic()
    shared_guest.put(content, "/tmp/ten", time_limit=1200)
    between = time.monotonic()
    assert shared_guest.get("/tmp/ten", time_limit=1200) == content
    print(f"10 MB in {between - began:.0f} s, out {time.monotonic() - between:.0f} s")
