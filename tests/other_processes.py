# SPDX-License-Identifier: GPL-2.0-only
"""Processes beside a test. A wait for what one does ends when that has happened or it has died, never by a clock."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

FORK = multiprocessing.get_context("fork")
"""Children with all that the test has. A daemon among them is ended with the test's own process."""

FOR_EVER = 1e6
"""Seconds that a process sleeps which is killed."""

_PAUSE = 0.01


def wait_while_alive(process: BaseProcess, has_happened: Callable[[], bool]) -> None:
    """Wait for what a process does. Fails the test where it has ended without."""
    while not has_happened():
        assert process.is_alive() or has_happened(), f"the process ended, with {process.exitcode}, before"
        time.sleep(_PAUSE)
