# SPDX-License-Identifier: GPL-2.0-only
"""Expected failures as a sentence on stderr and an exit status, never as a traceback."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

import typer

from orchestrator.errors import HostError, Interrupted, LabError
from orchestrator.plain_text import plain_text

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
            place = f"{error.filename}: " if error.filename is not None else ""
            print(plain_text(f"error: {place}{(error.strerror or str(error)).lower()}"), file=sys.stderr)
            raise typer.Exit(HostError.exit_status) from None
        except KeyboardInterrupt as interruption:
            number = interruption.signal if isinstance(interruption, Interrupted) else signal.SIGINT
            print(f"stopped by {signal.Signals(number).name}", file=sys.stderr)
            raise typer.Exit(128 + number) from None

    return guarded


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the program like Ctrl-C does, so that guests end and the store is closed."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
    # Under nohup, SIGHUP is ignored from the start and stays so.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, stop)
