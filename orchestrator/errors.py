# SPDX-License-Identifier: GPL-2.0-only
"""Every expected failure, as one tree; the root decides the exit status.

An error is written for the person who has to act: what happened, where (file and line, or the
console's last lines), and what to do next. Expected failures never show a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.plain_text import plain_text


class LabError(Exception):
    """An expected failure.

    ``what`` is one sentence. ``where`` names a place (``file:line``) or is empty. ``hint`` says what to do.
    ``detail`` holds lines to quote: a compiler's messages, a console's last lines.
    """

    exit_status = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "", detail: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.detail = tuple(detail)

    def rename(self, file: str, title: str) -> None:
        """Call a file that is not the user's by a ``title`` that tells him what it is."""
        self.reword(lambda text: text.replace(file, title))

    def reword(self, change: Callable[[str], str]) -> None:
        """Change each part of the message."""
        self.what, self.where, self.hint = change(self.what), change(self.where), change(self.hint)
        self.detail = tuple(map(change, self.detail))

    def __str__(self) -> str:
        """The whole message: place and sentence, then the quoted lines, then the hint.

        Control characters are escaped, since any part may quote a guest, a file or a program.
        """
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        lines += [f"    {line}" for quoted in self.detail for line in quoted.split("\n")]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return plain_text("\n".join(lines))


class UsageError(LabError):
    """The command line or the configuration is wrong; nothing was changed."""

    exit_status = 2


class ConfigError(UsageError):
    """An experiment file, an override or a filter is wrong."""


class HostError(LabError):
    """The host lacks something: a program, a package suite, disk space, a network."""

    exit_status = 3


class Interrupted(KeyboardInterrupt):
    """The system asked us to stop (SIGTERM, SIGHUP); handled wherever Ctrl-C is. ``signal`` is the signal's number."""

    def __init__(self, signal: int) -> None:
        super().__init__()
        self.signal = signal


class BuildError(LabError):
    """A module, kernel or guest program did not build."""


class GuestError(LabError):
    """Something went wrong with a running guest. ``detail`` quotes the console's last lines."""


class GuestRefusal(GuestError):
    """The guest or QEMU has answered that it does not do what it was asked: the guest lives."""


class GuestPanic(GuestError):
    """The guest's kernel panicked."""


class GuestOops(GuestError):
    """The guest's kernel reported an oops, a warning or a stall, or was tainted, and went on running."""


class GuestHang(GuestError):
    """The guest gave no sign of life within the time limit."""


class GuestConnectionLost(GuestError):
    """The command channel broke while the guest was still running."""


class GuestExit(GuestError):
    """QEMU ended before the guest was asked to. ``status`` is its exit status, negative for a signal."""

    status: int | None = None


class CommandTimeout(GuestError):
    """A command exceeded its time limit and was killed; the guest lives."""


class CommandFailed(GuestError):
    """A command that had to succeed, or to fail, did not."""


class EvidenceError(LabError):
    """A proof failed: the measurement is not of what the cell asks for. The cell fails with this reason."""


class NoProfile(EvidenceError):
    """QEMU cannot count these instructions one by one. What the clock has measured keeps its number."""


class NotEntered(EvidenceError):
    """QEMU shows that the calls never ran into the probe. The cell fails; its guest is sound."""


class OtherMechanism(EvidenceError):
    """The kernel runs the kprobe by another mechanism than the cell asks for. The guest is sound."""


class PlaceRefused(EvidenceError):
    """The kernel refuses a probe of this kind at the place. The guest is sound."""


class HitSkipped(EvidenceError):
    """At a hit the kernel skipped the program, as it was running for another hit; the count may be repeated."""


class UnsupportedError(LabError):
    """A guest, kernel or module lacks the requested feature; it is otherwise sound."""


class NeverAtPlace(UnsupportedError):
    """The guest's kernel has answered that no probe of this kind can be at the place. The guest is sound."""
