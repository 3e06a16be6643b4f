# SPDX-License-Identifier: GPL-2.0-only
"""The environment of all tests: the same whatever terminal, language, time zone, umask and signals the caller has.

Temporary files are below one folder, which is removed in the end, whatever ends the tests.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

_SETTINGS = {"LANG": "C.UTF-8", "TERM": "dumb", "TZ": "UTC", "HYPOTHESIS_NO_PLUGINS": "1"}
"""Hypothesis has a plugin of trio, which takes a tenth of a second in each process that imports it."""
_REMOVED = (
    *("CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE"),
    *("COLUMNS", "LINES", "TERMINAL_WIDTH", "ORCHESTRATOR_CALLED_AS", "ORCHESTRATOR_WEBHOOK"),
    *("ORCHESTRATOR_CALLED_BY", "ORCHESTRATOR_CALLED_WITH", "ORCHESTRATOR_TESTS_CALLED_AS"),
    "ORCHESTRATOR_INSTALLER",
    *("BASH_ENV", "CDPATH", "ENV", "GREP_OPTIONS", "LANGUAGE", "POSIXLY_CORRECT"),
    *("ARCH", "CFLAGS", "CROSS_COMPILE", "KBUILD_OUTPUT", "LDFLAGS", "MAKEFLAGS", "MFLAGS", "SOURCE_DATE_EPOCH"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHONWARNINGS"),
)
"""Variables that programs of the lab and its tests obey."""

WRITE_GOLDEN = "LAB_WRITE_GOLDEN"
"""The variable that is set while golden files are written."""

_UMASK = 0o022
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""What nohup, and a shell without job control that starts something in the background, let it ignore."""


def neutralise_environment(config: pytest.Config) -> None:
    """Set variables, umask and signals until pytest ends. The workers of pytest-xdist inherit them."""
    patch = pytest.MonkeyPatch()
    for name in [*_REMOVED, *(name for name in os.environ if name.startswith("LC_"))]:
        patch.delenv(name, raising=False)
    for name, value in _SETTINGS.items():
        patch.setenv(name, value)
    time.tzset()
    umask = os.umask(_UMASK)
    for number in _IGNORED:
        # Programs inherit that a signal is ignored, but no handler.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

    def restore() -> None:
        patch.undo()
        time.tzset()
        os.umask(umask)

    config.add_cleanup(restore)
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist has the folder of the process that started it
        patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest keeps what failed tests have written
        folder = tempfile.TemporaryDirectory(prefix="lab-tests-", ignore_cleanup_errors=True)
        Path(folder.name).chmod(0o1777)  # some tests become another user
        config.add_cleanup(folder.cleanup)
        patch.setenv("TMPDIR", folder.name)
        tempfile.tempdir = None
        config.add_cleanup(lambda: setattr(tempfile, "tempdir", None))
