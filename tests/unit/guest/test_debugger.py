# SPDX-License-Identifier: GPL-2.0-only
"""Does the lab speak with QEMU's gdb stub, and give it to one debugger that comes and goes?"""

from __future__ import annotations

import os
import re
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from orchestrator.errors import GuestConnectionLost, GuestError, HostError
from orchestrator.guest.debugger import DebuggerStub, Stub, i386_description, packed
from orchestrator.guest.monitor import Monitor

PLACE = 0xC1093A15
REGISTERS = "00" * 128 + PLACE.to_bytes(8, "little").hex()
PATIENCE = 300.0
"""Seconds until a test ends whose answer does not come."""
PACKET = re.compile(rb"\$([^#]*)#(..)")


class FakeQemu:
    """QEMU's side of the stub. It answers packets in order, and ends at a second detaching, as QEMU 7.2 does."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.is_stopped = False
        self.detached = 0
        self._thread: threading.Thread | None = None
        self._end: socket.socket | None = None

    def open_stub(self, descriptor: int) -> None:
        self.is_stopped = True
        self._end = socket.socket(fileno=os.dup(descriptor))
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def status(self) -> str:
        return "paused" if self.is_stopped else "running"

    def die(self) -> None:
        assert self._end is not None
        self._end.shutdown(socket.SHUT_RDWR)

    def _answer(self) -> None:
        assert self._end is not None
        rest = b""
        while data := self._end.recv(4096):
            rest += data
            if not self.is_stopped and b"\x03" in rest:
                rest, self.is_stopped = rest.partition(b"\x03")[2], True
                if not self.detached:  # else QEMU has nobody to tell
                    self._send("T02thread:01;")
            while packet := PACKET.search(rest):
                rest = rest[packet.end() :]
                if packet[2] == b"%02x" % (sum(packet[1]) & 0xFF):
                    self._send(self._reply(packet[1].decode()))
                else:
                    self._end.sendall(b"-")

    def _reply(self, packet: str) -> str:
        self.heard.append(packet)
        if packet.startswith("D"):
            self.detached += 1
            self.is_stopped = False
            if self.detached > 1:
                self.die()
            return "OK"
        if packet.startswith("vAttach"):
            self.detached = 0
        return {"g": REGISTERS, "Zz": "E22"}.get(packet, "OK" if packet[0] in "Zz" else "T05thread:01;")

    def _send(self, body: str) -> None:
        assert self._end is not None
        self._end.sendall(b"$%s#%02x" % (body.encode(), sum(body.encode()) & 0xFF))


@pytest.fixture
def qemu() -> FakeQemu:
    return FakeQemu()


@pytest.fixture
def stub(qemu: FakeQemu) -> Iterator[Stub]:
    made = Stub(cast(Monitor, qemu))
    yield made
    made.close()


def test_a_guest_is_stepped_and_goes_on(qemu: FakeQemu, stub: Stub) -> None:
    assert qemu.is_stopped
    with stub.breakpoints([0x10]):
        stub.go()
    assert stub.step() == PLACE
    stub.detach()
    stub.detach()
    assert qemu.heard == ["Z1,10,1", "s", "c", "z1,10,1", "s", "g", "D;1"]
    assert not qemu.is_stopped
    stub.stop()
    assert qemu.is_stopped
    assert stub.pointer() == PLACE
    stub.detach()
    assert qemu.detached == 1


def test_the_end_of_qemu_is_an_error(qemu: FakeQemu, stub: Stub) -> None:
    qemu.die()
    with pytest.raises(GuestConnectionLost):
        stub.pointer()
    stub.detach()  # which is none


class Announced:
    def __init__(self) -> None:
        self.place = Path()
        self.came = threading.Event()

    def __call__(self, place: Path) -> None:
        self.place = place
        self.came.set()

    def connect(self) -> socket.socket:
        self.came.wait()
        debugger = socket.socket(socket.AF_UNIX)
        debugger.connect(str(self.place))
        return debugger


@pytest.mark.parametrize("last", ["$D;1#b0", "+$D;1#b0", "$s#73", "$s#7", ""])
def test_a_debugger_comes_and_goes_in_any_state(qemu: FakeQemu, stub: Stub, last: str) -> None:
    announced = Announced()
    attachment = DebuggerStub(stub, announced)
    with announced.connect() as debugger:
        attachment.wait_until_attached()
        assert stat.S_IMODE(announced.place.parent.stat().st_mode) == 0o700
        debugger.sendall(b"$g#67")
        assert debugger.recv(4096).startswith(b"$" + REGISTERS.encode()[:200])
        debugger.sendall(last.encode())
        if last.endswith(("b0", "73")):
            assert debugger.recv(4096)
    attachment.wait_until_detached()
    assert qemu.detached == 1
    assert not qemu.is_stopped
    assert not announced.place.exists()


def test_a_debugger_need_not_ask_again_while_the_guest_is_stepped(
    qemu: FakeQemu, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply, has_acknowledgement = qemu._reply, threading.Event()

    def reply_to_steps_later(packet: str) -> str:
        if packet == "s":
            has_acknowledgement.wait()
        return reply(packet)

    monkeypatch.setattr(qemu, "_reply", reply_to_steps_later)
    announced = Announced()
    attachment = DebuggerStub(stub, announced, steps=10)
    with announced.connect() as debugger:
        debugger.settimeout(PATIENCE)
        attachment.wait_until_attached()
        debugger.sendall(packed(f"Z1,{PLACE:x},1"))
        assert debugger.recv(4096) == packed("OK")
        debugger.sendall(packed("vCont;c"))
        assert debugger.recv(4096) == b"+"
        has_acknowledgement.set()
        assert debugger.recv(4096) == packed("T05thread:01;")
    attachment.wait_until_detached()
    assert qemu.heard.count("s") == 1


def test_a_socket_that_cannot_be_made(
    qemu: FakeQemu, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)  # a socket's path has at most 107 bytes
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    attachment = DebuggerStub(stub, Announced())
    with pytest.raises(HostError, match="no debugger can attach: "):
        attachment.wait_until_detached()
    assert not qemu.is_stopped


def test_nobody_comes(qemu: FakeQemu, stub: Stub) -> None:
    announced = Announced()
    attachment = DebuggerStub(stub, announced)
    announced.came.wait()
    qemu.die()
    with pytest.raises(GuestError, match="ended before a debugger came"):
        attachment.wait_until_attached()


def test_an_attachment_is_closed(qemu: FakeQemu, stub: Stub) -> None:
    announced = Announced()
    attachment = DebuggerStub(stub, announced)
    with announced.connect() as debugger:
        attachment.wait_until_attached()
        attachment.close()
        assert debugger.recv(10) == b""
    assert not qemu.is_stopped


@pytest.mark.parametrize("answer", ["E01", "", "0", "xy"])
def test_an_answer_that_is_no_memory(qemu: FakeQemu, stub: Stub, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(qemu, "_reply", lambda packet: answer)
    if answer in ("E01", ""):
        assert stub.memory(0, 1) == b""
    else:
        with pytest.raises(GuestError, match="expected hexadecimal digits"):
            stub.memory(0, 1)
    with pytest.raises(GuestError):
        i386_description(answer)


QEMUS = """<?xml version="1.0"?>
<!DOCTYPE target SYSTEM "gdb-target.dtd">
<feature name="org.gnu.gdb.i386.core">
  <reg name="rax" bitsize="64" type="int64" regnum="0"/>
  <reg name="rbp" bitsize="64" type="data_ptr"/>
  <reg name="r10" bitsize="64" type="int64"/>
  <reg name="rip" bitsize="64" type="code_ptr"/>
  <reg name="eflags" bitsize="32" type="int"/>
</feature>
"""


def test_registers_of_i386_stay_where_qemu_has_them() -> None:
    described = ElementTree.fromstring(i386_description(QEMUS))
    assert described.findtext("architecture") == "i386"
    places, bits = {}, 0
    for register in described.iter("reg"):
        places[register.attrib["name"]] = bits
        bits += int(register.attrib["bitsize"])
    assert {name: places[name] for name in ("eax", "ebp", "r10", "eip", "eflags")} == {
        "eax": 0,
        "ebp": 64,
        "r10": 128,
        "eip": 192,
        "eflags": 256,
    }
