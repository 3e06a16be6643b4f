# SPDX-License-Identifier: GPL-2.0-only
"""Do the tests pass whatever terminal, language, time zone, umask and signals the caller has?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOREIGN = {
    "NO_COLOR": "1",
    "FORCE_COLOR": "1",
    "COLUMNS": "20",
    "LC_ALL": "C",
    "LANGUAGE": "de",
    "TZ": "Asia/Kathmandu",
    "PYTHONDONTWRITEBYTECODE": "1",
    "POSIXLY_CORRECT": "1",
    "MAKEFLAGS": "-n",
}
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
IGNORING = ("sh", "-c", 'trap "" HUP INT QUIT; exec "$@"', "sh")


def test_nothing_of_the_callers_is_seen() -> None:
    assert FOREIGN.keys() & os.environ.keys() == {"TZ"}
    assert not [name for name in os.environ if name.startswith("LC_")]
    umask = os.umask(0)
    os.umask(umask)
    assert (umask, time.localtime(0).tm_hour) == (0o022, 0)
    assert signal.SIG_IGN not in {signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}


def test_a_foreign_environment_makes_no_difference(tmp_path: Path) -> None:
    """The test above, and those of output with and without colours, in a pytest with a worker."""
    tests = (f"{__file__}::{test_nothing_of_the_callers_is_seen.__name__}", TESTS / "unit/host/test_doctor.py")
    done = subprocess.run(
        [*IGNORING, *PYTEST, "-n", "1", *tests, "-k", "rendered or seen"],
        env={**os.environ, **FOREIGN},
        cwd=TESTS.parent,
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
