# SPDX-License-Identifier: GPL-2.0-only
"""A debugger for a guest: QEMU's gdb stub, driven by the lab itself, and handed to a person's gdb."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.deadline import uncounted
from orchestrator.errors import GuestConnectionLost, GuestError, HostError
from orchestrator.files import ScratchFolder
from orchestrator.guest.monitor import Monitor

_READ_MAX = 1 << 16
_LONGEST_REPLY = 1 << 20
_ACKNOWLEDGED, _INTERRUPT = b"+", b"\x03"
_DETACHING_LIMIT = 10.0
_QUOTED = 80
_WORD = 8  # bytes
_POINTER = 16
"""The number of RIP among the registers. QEMU's x86_64 emulator has 64-bit ones for i386 guests, too."""


def packed(text: str) -> bytes:
    """A packet of gdb's remote serial protocol."""
    body = text.encode("ascii")
    return b"$%s#%02x" % (body, sum(body) & 0xFF)


def _bytes_in(answer: str) -> bytes:
    try:
        return bytes.fromhex(answer)
    except ValueError:
        raise GuestError(f"QEMU's stub answers {answer[:_QUOTED]!r}; expected hexadecimal digits") from None


class Stub:
    """The only connection to the stub of a guest, by gdb's remote serial protocol. Making it stops the guest.

    A stop at a breakpoint moves the exact clock to the guest's next timer: QEMU 7.2 takes the CPU for idle before it
    knows that the machine has stopped (``icount_start_warp_timer()``). A single step moves it by one instruction, and
    timers and interrupts wait meanwhile. Raises GuestConnectionLost once QEMU has ended.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.connection, theirs = socket.socketpair()
        self._monitor, self._received, self._sent = monitor, b"", b""
        self.is_detached = False
        with contextlib.closing(theirs):
            monitor.open_stub(theirs.fileno())

    def ask(self, packet: str) -> str:
        """Send a packet and return the answer; to ``c`` and ``s`` it is why the guest has stopped."""
        self._send_packet(packet)
        return self._answer()

    def stop(self) -> None:
        """Stop a guest that was detached."""
        if self.is_detached:
            self.connection.settimeout(None)
            self._interrupt()
            with contextlib.suppress(BlockingIOError):
                self.connection.recv(_READ_MAX, socket.MSG_DONTWAIT)  # the end of the last conversation
            self._received = b""
            self.ask("vAttach;1")
            self.is_detached = False

    def detach(self) -> None:
        """Remove all breakpoints, and let the guest go on, in whatever state a debugger has left it."""
        if self.is_detached:  # QEMU 7.2 crashes at a second time
            return
        self.is_detached = True
        with contextlib.suppress(GuestError):  # QEMU has ended
            self.connection.settimeout(_DETACHING_LIMIT)
            self._interrupt()
            self._send_packet("D;1")  # with the process, which gdb makes QEMU expect
            while self._answer() != "OK":
                pass

    def close(self) -> None:
        """Close the connection of a guest that has ended."""
        self.connection.close()

    def _interrupt(self) -> None:
        if self._monitor.status() == "running":
            # While the guest runs, any byte stops it and means nothing else, but for one that the stub takes as the
            # answer to its last packet.
            self._send(_ACKNOWLEDGED + _INTERRUPT)

    def pointer(self) -> int:
        """The address of the next instruction."""
        registers = _bytes_in(self.ask("g"))
        return int.from_bytes(registers[_POINTER * _WORD : (_POINTER + 1) * _WORD], "little")

    def memory(self, address: int, size: int) -> bytes:
        """Memory at a virtual address; empty where the guest has none."""
        answer = self.ask(f"m{address:x},{size:x}")
        return b"" if answer.startswith("E") else _bytes_in(answer)

    def go(self) -> None:
        """Run to the next breakpoint, and not to one at the next instruction itself."""
        self.ask("s")
        self.ask("c")

    def step(self) -> int:
        """Execute one instruction; returns the address of the next. Interrupts wait."""
        self.ask("s")
        return self.pointer()

    @contextlib.contextmanager
    def breakpoints(self, addresses: Sequence[int]) -> Iterator[None]:
        """Breakpoints that leave memory as it is."""
        for address in addresses:
            if self.ask(f"Z1,{address:x},1") != "OK":
                raise GuestError(f"QEMU's stub refuses a breakpoint at {address:#x}")
        yield
        for address in addresses:
            self.ask(f"z1,{address:x},1")

    def _send_packet(self, packet: str) -> None:
        self._sent = packed(packet)
        self._send(self._sent)

    def _send(self, data: bytes) -> None:
        try:
            self.connection.sendall(data)
        except OSError as error:
            raise GuestConnectionLost(f"the debugger's connection to QEMU broke: {error.strerror}") from None

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                data = self.connection.recv(_READ_MAX)
            except OSError as error:
                raise GuestConnectionLost(f"the debugger's connection to QEMU broke: {error.strerror}") from None
            if not data:
                raise GuestConnectionLost("QEMU has ended, and its debugger's connection with it")
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _answer(self) -> str:
        while (mark := self._take(1)) != b"$":
            if mark == b"-":  # the packet followed a part of a debugger's
                self._send(self._sent)
        body = bytearray()
        while (byte := self._take(1)) != b"#":
            body += byte
            if len(body) > _LONGEST_REPLY:
                raise GuestConnectionLost("QEMU's stub has sent an endless packet")
        self._take(2)  # the sum: nothing is lost on a local socket
        self._send(_ACKNOWLEDGED)
        return body.decode("ascii", errors="replace")

    def description(self) -> str:
        """The registers of an i386 guest for gdb, in the halves of those that QEMU has, which gdb would refuse."""
        text, more = "", True
        while more:
            answer = self.ask(f"qXfer:features:read:{_REGISTERS}:{len(text):x},800")
            more, text = answer.startswith("m"), text + answer[1:]
        return i386_description(text)


_BREAKPOINT = re.compile(rb"\$([Zz])[01],([0-9a-f]{1,16}),")
_REGISTERS = "i386-64bit.xml"  # gdb-xml/ of QEMU
_GENERAL = re.compile(r'<reg name="r([abcd]x|[sd]i|[bsi]p)" bitsize="64" type="(\w+)"([^>]*/>)')


def i386_description(of_64_bits: str) -> str:
    """A description for gdb of an i386 machine whose registers are where QEMU's description for x86_64 has them.

    Raises GuestError for another text.
    """

    def halves(register: re.Match[str]) -> str:
        kind = "int32" if register[2] == "int64" else register[2]
        lower = f'<reg name="e{register[1]}" bitsize="32" type="{kind}"{register[3]}'
        return f'{lower}<reg name="{register[1]}_upper" bitsize="32" type="int32"/>'

    _, tag, feature = of_64_bits.partition("<feature")
    if not tag:
        raise GuestError(f"QEMU's stub has no description {_REGISTERS} of its registers")
    feature = _GENERAL.sub(halves, tag + feature)
    return f'<?xml version="1.0"?><target><architecture>i386</architecture>{feature}</target>'


class DebuggerStub:
    """A stopped guest's stub on a private socket until a debugger has come and gone.

    ``announce`` gets the socket's path. Time limits do not count meanwhile. The debugger comes to its breakpoints in up
    to ``steps`` single steps first, as a stop at one would move the exact clock, perhaps by a day.
    """

    def __init__(self, stub: Stub, announce: Callable[[Path], None], steps: int = 0) -> None:
        self._stub, self._announce, self._steps = stub, announce, steps
        self._breakpoints: set[int] = set()
        self._attached = threading.Event()
        self._ended, self._end = socket.socketpair()
        self._error: GuestError | HostError | None = None
        self._thread = threading.Thread(target=self._serve, name="debugger", daemon=True)
        self._thread.start()

    def wait_until_attached(self) -> None:
        """Wait for a debugger. Raises HostError, and GuestError if QEMU ends before."""
        self._attached.wait()
        if self._error is not None:
            raise self._error

    def wait_until_detached(self) -> None:
        """Wait for the debugger's end. Raises HostError, GuestError if none could come."""
        self._thread.join()
        self.wait_until_attached()

    def close(self) -> None:
        """Disconnect the debugger; the guest goes on."""
        self._end.close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            with (
                uncounted(),
                contextlib.closing(self._ended),
                contextlib.ExitStack() as ends,
                ScratchFolder("lab-gdb-") as folder,
                socket.socket(socket.AF_UNIX) as listener,
            ):
                ends.callback(self._stub.detach)
                # Only the user may enter the folder, and so connect.
                listener.bind(str(folder / "gdb"))
                listener.listen(1)
                self._announce(folder / "gdb")
                if self._first_ready(listener) is not listener:
                    raise GuestConnectionLost("the guest has ended before a debugger came")
                with listener.accept()[0] as debugger:
                    self._attached.set()
                    self._forward(debugger)
        except (GuestError, HostError) as error:
            self._error = error
        except (OSError, ValueError) as error:  # ValueError: another thread has ended the guest and its connection
            self._error = HostError(f"no debugger can attach: {error}")
        finally:
            self._attached.set()

    def _first_ready(self, *other_sockets: socket.socket) -> socket.socket:
        poll, ends = select.poll(), [self._ended, self._stub.connection, *other_sockets]
        for end in ends:
            poll.register(end, select.POLLIN)
        ready = dict(poll.poll())
        return next(end for end in ends if end.fileno() in ready)

    def _forward(self, debugger: socket.socket) -> None:
        stub = self._stub.connection
        while (source := self._first_ready(debugger)) is not self._ended:
            try:
                data = os.read(source.fileno(), _READ_MAX)
                if source is stub or not self._steps_for(debugger, data):
                    (debugger if source is stub else stub).sendall(data)
            except OSError:  # one side has gone
                return
            if not data:
                return

    def _steps_for(self, debugger: socket.socket, data: bytes) -> bool:
        """Whether single steps have done what a debugger asks for: to continue to a breakpoint."""
        for kind, place in _BREAKPOINT.findall(data):
            (self._breakpoints.add if kind == b"Z" else self._breakpoints.discard)(int(place, 16))
        packet = data.rpartition(b"$")[2] if b"$" in data else b""
        if packet:
            self._stub.is_detached = packet.startswith(b"D")
        if not (packet.startswith((b"c#", b"vCont;c")) and self._breakpoints and self._steps):
            return False
        # gdb 13 sends a packet again that is not acknowledged within 2 s; on a slow host the steps take longer.
        debugger.sendall(_ACKNOWLEDGED)
        interrupted = select.poll()
        interrupted.register(debugger, select.POLLIN)
        for _ in range(self._steps):
            answer = self._stub.ask("s")
            if self._stub.pointer() in self._breakpoints or interrupted.poll(0):
                debugger.sendall(packed(answer))
                return True
        return False
