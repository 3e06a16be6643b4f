# SPDX-License-Identifier: GPL-2.0-only
"""One target in a process that atheris owns: ``python -m fuzz.under_atheris TARGET LIBFUZZER-ARGUMENTS``."""

from __future__ import annotations

import resource
import shlex
import sys

import atheris

from .registry import TARGETS
from .target import Feeder

_ADDRESS_SPACE = 4 << 30
"""Bytes. A reader that asks for as many as an input says gets a MemoryError, which nothing may raise."""


def main() -> None:
    """Fuzz the target. Ends the process: with status 0 where nothing was found."""
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["orchestrator"]):
        feeder = Feeder.of(TARGETS[name])
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    # libFuzzer starts itself anew to merge, by a shell and these words.
    itself = shlex.join([sys.executable, "-m", __spec__.name, name])
    atheris.Setup([itself, *arguments], feeder.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
