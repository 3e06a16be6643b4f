# SPDX-License-Identifier: GPL-2.0-only
"""The lab of a command, which shows a run's progress on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TextIO

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.cli import options, printing
from orchestrator.cli.progress_lines import Lines, Listening
from orchestrator.library.lab import Lab
from orchestrator.run.runner import ProgressListener


class _Said(ProgressListener):
    """Prints on stderr what is said between runs."""

    def say(self, text: str) -> None:
        printing.say(text)

    def warn(self, text: str) -> None:
        printing.say(text)


@dataclass(frozen=True)
class ConsoleLab(Lab):
    """The lab of a command: its progress is on stderr, each step too if ``verbose``."""

    progress: ProgressListener = field(default_factory=_Said)
    verbose: bool = False

    _prefix: ClassVar[str] = "--"

    def spoken(self, text: str) -> str:
        return text

    @contextmanager
    def building(self) -> Iterator[BuildContext]:
        with options.building(offline=self.offline, verbose=self.verbose) as context:
            yield context

    @contextmanager
    def watched(self) -> Iterator[ProgressListener]:
        with listener(sys.stderr) as watching, options.printed_steps(verbose=self.verbose):
            yield watching


_MAKE_A_TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which rich takes any stream for a terminal."""


@contextmanager
def listener(stream: TextIO) -> Iterator[Listening]:
    """A run's progress display, live on a terminal that can move its cursor."""
    if not stream.isatty() and not any(name in os.environ for name in _MAKE_A_TERMINAL):
        yield Lines(stream)
        return
    from orchestrator.cli.live_progress import live_progress  # loads rich

    with live_progress(stream) as live:
        yield Lines(stream) if live is None else live
