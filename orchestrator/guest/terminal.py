# SPDX-License-Identifier: GPL-2.0-only
"""A guest's serial console on the user's terminal.

QEMU connects the console to a pseudo-terminal, and pexpect copies between its other end and the user's terminal. The
agent starts the shell on the guest's end, so nothing else of the guest differs from a measured one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import tty
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pexpect

from orchestrator.errors import GuestError, GuestExit, GuestOops, HostError
from orchestrator.guest.guest import Guest, Watch
from orchestrator.guest.guest_group import Guests
from orchestrator.guest.taint import taint_mask
from orchestrator.paths import data_dir

if TYPE_CHECKING:
    _Spawn = pexpect.spawn[bytes]
else:
    _Spawn = pexpect.spawn  # not generic at run time

ESCAPE_KEY = "Ctrl-]"

_ESCAPE = b"\x1d"
_ATTENDED_LIMIT = 20 * 86_400.0  # a session may be long; poll() takes at most 24 days
_DYING_LIMIT = 10.0
_LEAVING_LIMIT = 3.0
_PROGRAM = "/bin/console-shell"


class _Terminal(_Spawn):
    """The lab's end of the console. pexpect has no child process: QEMU belongs to the guest."""

    def __init__(self, descriptor: int, session: threading.Thread) -> None:
        super().__init__(cast(str, None))  # pexpect's way to have no child
        self.ptyproc = SimpleNamespace(flag_eof=False)  # pexpect records the end here
        self.child_fd = descriptor
        self.closed = False
        self._session = session
        self._left = False

    def isalive(self) -> bool:
        """Whether the console may still print."""
        return self._session.is_alive()

    def converse(self) -> bool:
        """Copy between the console and the user's terminal; True if the user ended it."""
        self.interact(escape_character=_ESCAPE.decode(), input_filter=self._watch)
        return self._left

    def _watch(self, typed: bytes) -> bytes:
        # An empty read is the end of a terminal that was hung up; treated as the escape key.
        typed = typed or _ESCAPE
        self._left = self._left or _ESCAPE in typed
        return typed

    def close(self, force: bool = True) -> None:  # noqa: FBT001, FBT002 - as in pexpect
        """Leave the descriptor open: ``attend`` closes it."""
        del force
        self.closed = True
        self.child_fd = -1


Prepared = Callable[[Guest], contextlib.AbstractContextManager[None]]
"""Prepares a guest for its session, and finishes it after that."""


class _Session(threading.Thread):
    """The guest's lifecycle: it starts, its shell starts, and it ends with the shell."""

    def __init__(self, start: Callable[[Watch], Guest], prepared: Prepared, token: str, their_end: int) -> None:
        super().__init__(name="guest")
        self._start, self._prepared = start, prepared
        self._token, self._their_end = token, their_end
        self.guests = Guests()
        self.guest: Guest | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            try:
                self.guest = self._start(self.guests.watch)
            finally:
                # QEMU has opened it, or never will. While it is open here, the other end sees no hang-up.
                os.close(self._their_end)
            before = taint_mask(self.guest)
            with self._prepared(self.guest):
                self._attend(self.guest)
            self.guest.check_console()
            self.guest.check_taint(before, has_reported=bool(self.guest.reports()))
        except BaseException as error:
            self.error = error
        finally:
            # The other thread waits for the console's end.
            self.guests.end()

    def _attend(self, guest: Guest) -> None:
        size = shutil.get_terminal_size()
        environment = [f"ROWS={size.lines}", f"COLS={size.columns}", f"TERM={os.environ.get('TERM', 'vt100')}"]
        guest.put(data_dir("images") / "guest" / "console-shell.sh", _PROGRAM, mode=0o755)
        argv = ["env", *environment, _PROGRAM, self._token, guest.machine.cpu.name]
        guest.run(argv, time_limit=_ATTENDED_LIMIT)


def attend(start: Callable[[str, Watch], Guest], prepared: Prepared) -> None:
    """Start a guest, and connect its console to the terminal until either ends, within ``prepared``.

    ``start`` gets the device for the guest's console, and a callback for each guest before it runs. Returns when the
    shell ends, the guest resets itself, or the user presses the escape key. Otherwise raises GuestError, GuestOops if
    the kernel has reported trouble that is not in ``expected_reports`` or become tainted, and HostError if the host has
    no pseudo-terminal.
    """
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        what = f"the guest's console needs a pseudo-terminal, and this host gives none: {error.strerror}"
        raise HostError(what, hint="as root: mount -t devpts devpts /dev/pts") from None
    tty.setraw(theirs)
    token = secrets.token_hex(16)
    session = _Session(partial(start, os.ttyname(theirs)), prepared, token, theirs)
    session.start()
    try:
        terminal = _Terminal(ours, session)
        # The shell begins with the token; the user or the console's end ends the session.
        has_begun = terminal.expect_exact([token.encode(), pexpect.EOF], timeout=None) == 0
        left = has_begun and terminal.converse()
        if left and session.guest is not None:
            with contextlib.suppress(GuestError):
                session.guest.stop_command()
        # The console ends before QEMU does, and QEMU's exit status has the reason.
        session.join(_LEAVING_LIMIT if left else _DYING_LIMIT)
    finally:
        session.guests.end()
        session.join()
        if session.guest is not None:
            session.guest.kill()
        os.close(ours)
    if isinstance(session.error, GuestOops):
        raise session.error
    has_reset_itself = isinstance(session.error, GuestExit) and session.error.status == 0  # or powered off, no panic
    if session.error is not None and not left and not has_reset_itself:
        raise session.error
    if session.guest is not None:
        session.guest.check_console()
