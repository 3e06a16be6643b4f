# SPDX-License-Identifier: GPL-2.0-only
"""The channel to a guest's own sshd, for guests with a distribution on a disk: commands and SFTP, as root.

A command is a script on the standard input of a shell (see ``marked``), so its line may be as long as any channel's.
One that has to end early is killed through a second session.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import paramiko

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestError, GuestHang
from orchestrator.guest.channel import (
    KILL_LIMIT,
    OUTPUT_MAX,
    CommandResult,
    Listener,
    Output,
    Stream,
    TooMuchOutput,
    blocks,
    check_command,
    complaint,
    guest_path,
)
from orchestrator.guest.marked import MarkedCommand, guest_script
from orchestrator.guest.ssh_bounds import BoundedFiles
from orchestrator.guest.ssh_connection import Connection, connect

_SHELL = "exec /bin/sh"
_KILLED = 128 + 9
_READ_SIZE = 1 << 18
_BLOCK = paramiko.SFTPFile.MAX_REQUEST_SIZE
_UNANSWERED = 8
"""Blocks in flight: sshd moves all data that waits for its disk each time that more arrives."""


class SshChannel:
    """One connection to one guest's sshd; one request at a time. See ``Channel`` for what it does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def connect(
        cls, port: int, host_key: paramiko.PKey, client_key: paramiko.PKey, deadline: Deadline, *, ssse3: bool = False
    ) -> Self:
        """Connect to a loopback port, retrying until sshd is there; see ``ssh_connection.connect``."""
        return cls(connect(port, host_key, client_key, deadline, ssse3=ssse3))

    def run(
        self, argv: Sequence[str], *, time_limit: float, directory: str = "/", listener: Listener | None = None
    ) -> CommandResult:
        """Run a program, looked for in the PATH of the guest's sshd; see ``Channel.run``."""
        check_command(argv, directory)
        command = MarkedCommand(argv, directory, Output(listener))
        with self._started(command.script, Deadline(KILL_LIMIT)) as session:
            try:
                self._collect(session, command, Deadline(time_limit), lambda: command.ended)
            except TooMuchOutput:
                self._kill(session, command, time_limit)
                raise
            except GuestHang:
                self._kill(session, command, time_limit)
                raise CommandTimeout(
                    f"{argv[0]} did not end within {time_limit:g} s and was killed", detail=command.output.last_lines()
                ) from None
        # Without a status the shell itself was killed, by the command's signal to its group.
        return command.output.result(argv, _KILLED if command.status is None else command.status)

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        """Write a file in the guest; see ``Channel.put``."""
        path, deadline = guest_path(target), Deadline(time_limit)
        probe = ["dd", "if=/dev/zero", f"of={target}", "bs=1", "count=1", "conv=notrunc", "oflag=append", "status=none"]
        with contextlib.closing(blocks(content, _BLOCK)) as rest:
            block = next(rest, b"")  # a file of the host that cannot be read is known before anything is sent
            with self._files(deadline, f"cannot write {target}", probe) as (files, step):
                with step():
                    file = files.open(path, "wb")
                    with contextlib.suppress(OSError):  # the kernel's own files keep theirs
                        file.chmod(mode)
                number = 0
                while block:
                    following, number = next(rest, b""), number + 1
                    # A block that is not pipelined waits for the answers to all before it, which closing would not.
                    file.set_pipelined(bool(following) and number % _UNANSWERED != 0)
                    with step():
                        file.write(block)
                    block = following
                with step():
                    file.close()

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of the guest whole; see ``Channel.get``."""
        path, deadline = guest_path(source), Deadline(time_limit)
        content = bytearray()
        probe = ["dd", f"if={source}", "of=/dev/null", "bs=1", "count=1", "status=none"]
        with self._files(deadline, f"cannot read {source}", probe) as (files, step):
            with step():
                file = files.open(path, "rb")
                size = file.stat().st_size or 0
            if size <= largest:
                with step():
                    file.prefetch(size)
                block = b"."
                # Many files of procfs and sysfs have a size of 0 or of a page, whatever is in them.
                while block and size <= largest:
                    with step():
                        block = file.read(_BLOCK)
                    content += block
                    size = max(size, len(content))
        if size > largest:
            raise GuestError(f"cannot read {source}: it has more than {largest} bytes")
        return bytes(content)

    def close(self) -> None:
        """Close the connection; the guest runs on."""
        self._connection.close()

    @contextlib.contextmanager
    def _started(self, script: bytes, deadline: Deadline) -> Iterator[paramiko.Channel]:
        with self._connection.session(deadline) as session:
            with self._connection.bounded(deadline, session):
                session.exec_command(_SHELL)
                session.sendall(script)
                session.shutdown_write()
            yield session

    def _collect(
        self, session: paramiko.Channel, command: MarkedCommand, deadline: Deadline, enough: Callable[[], bool]
    ) -> None:
        """Receive a command's output until it is enough, or the session has ended."""
        poll = select.poll()
        poll.register(session.fileno(), select.POLLIN)
        while not enough():
            if not deadline.left():
                raise GuestHang("the guest gave no answer in time")
            over = session.eof_received or session.closed  # read before the output, some of which may arrive after it
            with self._connection.watched(deadline):  # reads what was received, without waiting
                stdout = session.recv(_READ_SIZE) if session.recv_ready() else b""
                stderr = session.recv_stderr(_READ_SIZE) if session.recv_stderr_ready() else b""
            command.feed(Stream.STDOUT, stdout)
            command.feed(Stream.STDERR, stderr)
            if stdout or stderr:
                continue
            if over:
                self._connection.check()
                return
            poll.poll(deadline.pause() * 1000)

    def _kill(self, session: paramiko.Channel, command: MarkedCommand, time_limit: float) -> None:
        deadline = Deadline(KILL_LIMIT)
        try:
            # A guest may be so slow, or a limit so short, that the command's number is still on its way.
            self._collect(session, command, deadline, lambda: command.process is not None)
            if command.process is None:
                return
            with (
                self._started(guest_script("kill-group.sh", str(command.process)), deadline) as killer,
                self._connection.bounded(deadline, killer),
            ):
                while killer.recv(_READ_SIZE):
                    pass
        except GuestHang:
            raise GuestHang(
                f"{command.argv[0]} did not end within {time_limit:g} s, and the guest does not answer any more"
            ) from None

    @contextlib.contextmanager
    def _files(
        self, deadline: Deadline, failure: str, probe: Sequence[str]
    ) -> Iterator[tuple[paramiko.SFTPClient, Callable[[], contextlib.AbstractContextManager[None]]]]:
        """SFTP on a session of its own, and what each step of its use is done in.

        Raises GuestError with the guest's reason. SFTP has codes for few of them: for others the program ``probe`` is
        run, which fails with the same reason.
        """
        with self._connection.session(deadline) as session:

            @contextlib.contextmanager
            def step() -> Iterator[None]:
                try:
                    with self._connection.bounded(deadline, session):
                        yield
                except OSError as error:
                    reason = self._reason(probe) if error.errno is None else os.strerror(error.errno).lower()
                    raise GuestError(f"{failure}: {reason}") from None

            with self._connection.bounded(deadline, session):
                session.invoke_subsystem("sftp")
                files = BoundedFiles(session)
            yield files, step

    def _reason(self, probe: Sequence[str]) -> str:
        with contextlib.suppress(CommandTimeout):
            return complaint(self.run(["env", "LC_ALL=C", *probe], time_limit=KILL_LIMIT).stderr)
        return "the guest does not say why"
