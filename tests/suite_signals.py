# SPDX-License-Identifier: GPL-2.0-only
"""SIGTERM and Ctrl-C end the tests in order: fixtures end their guests, and what was found so far is reported.

Only the process that reports obeys the terminal. It interrupts its workers, which die with it, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def obey_signals(config: pytest.Config) -> None:
    """Until this process ends, SIGTERM interrupts its tests as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    if hasattr(config, "workerinput"):
        # A handler, not SIG_IGN, which programs that a test starts would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(_Workers())


class _Workers:
    """In the process that reports: the workers of pytest-xdist, to be interrupted."""

    def __init__(self) -> None:
        self._pids: dict[Any, int] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._pids[node] = node.gateway._io.popen.pid  # execnet has no public name for it

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._pids.pop(node, None)

    def pytest_keyboard_interrupt(self) -> None:
        # They have xdist's 10 seconds to end their tests before they are killed.
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: another one would interrupt the end
    raise KeyboardInterrupt(signal.Signals(number).name)
