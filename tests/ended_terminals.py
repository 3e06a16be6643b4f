# SPDX-License-Identifier: GPL-2.0-only
"""The end of a program that a test has started on a terminal."""

from __future__ import annotations

import signal

import pexpect


def exit_status(program: pexpect.spawn[str]) -> int | None:
    """Wait until a program has closed its terminal and ended.

    pexpect's own close() gives it a tenth of a second after each signal, which a busy host does not.
    """
    program.expect(pexpect.EOF)
    program.wait()
    return program.exitstatus


def kill_on_terminal(program: pexpect.spawn[str]) -> None:
    """Kill a program that has not ended, and close its terminal."""
    if program.isalive():
        program.kill(signal.SIGKILL)
        program.wait()
    program.close()
