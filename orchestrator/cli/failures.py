# SPDX-License-Identifier: GPL-2.0-only
"""Expected failures as a sentence on stderr and an exit status, never as a traceback."""

from __future__ import annotations

import errno
import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

import typer

from orchestrator.errors import HostError, Interrupted, LabError

_LIMITS = {
    errno.EMFILE: "allow more open files: ulimit -n 1024",
    errno.ENFILE: "the host has too many files open: end other programs",
    errno.EAGAIN: "allow more processes (ulimit -u), or more memory (ulimit -v)",
    errno.ENOMEM: "allow more memory (ulimit -v), or end other programs",
}
"""What to do where a limit of the user's or of the host's is reached."""

_NO_THREAD = "can't start new thread"
"""What Python says with a RuntimeError, for a limit on processes or on memory."""

P = ParamSpec("P")
R = TypeVar("R")


def expected_failures(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose LabErrors and interruptions end the program as they should, and what the system refuses too."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except LabError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_status) from None
        except BrokenPipeError:
            # The reader of our output has closed it; typer ends the program quietly.
            raise
        except OSError as error:
            print(f"error: {_of_the_system(error)}", file=sys.stderr)
            raise typer.Exit(HostError.exit_status) from None
        except MemoryError:
            print(f"error: {HostError('there is not enough memory', hint=_LIMITS[errno.ENOMEM])}", file=sys.stderr)
            raise typer.Exit(HostError.exit_status) from None
        except RuntimeError as error:
            if str(error) != _NO_THREAD:
                raise
            print(f"error: {HostError(_NO_THREAD, hint=_LIMITS[errno.EAGAIN])}", file=sys.stderr)
            raise typer.Exit(HostError.exit_status) from None
        except KeyboardInterrupt as interruption:
            number = interruption.signal if isinstance(interruption, Interrupted) else signal.SIGINT
            print(f"stopped by {signal.Signals(number).name}", file=sys.stderr)
            raise typer.Exit(128 + number) from None

    return guarded


def _of_the_system(error: OSError) -> HostError:
    """What the system refused, with what can be done about it."""
    from orchestrator.disk_room import found_no_room, full_one, room_left, temporary_folder
    from orchestrator.paths import cache_dir, lab_dir

    where = str(error.filename) if error.filename is not None else ""
    if found_no_room(error):
        # A write does not say which file it was for.
        temporary = temporary_folder()
        folder = full_one((cache_dir(), lab_dir(), *(() if temporary is None else (temporary,))))
        hint = "make room there, then run again, or go on with --resume"
        return HostError(f"there is no room left: {room_left(folder)}", where=where or str(folder), hint=hint)
    hint = _LIMITS.get(error.errno or 0, "")
    return HostError((error.strerror or str(error)).lower(), where=where, hint=hint)


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the program like Ctrl-C does, so that guests end and the store is closed."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
    # Under nohup, SIGHUP is ignored from the start and stays so.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, stop)
