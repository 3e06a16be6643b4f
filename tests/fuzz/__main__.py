# SPDX-License-Identifier: GPL-2.0-only
"""``python -m tests.fuzz [TARGET ...]``, in the checkout's folder."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .fuzzing import TABLE_HEAD, fuzz, keep
from .registry import TARGETS
from .target import NIGHTLY_INPUTS


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the targets, one after the other, and print a table of them. The status is 1 where one has a find."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz readers of untrusted input.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one or several of: {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=_count, default=NIGHTLY_INPUTS, help="inputs for each target (%(default)s)")
    parser.add_argument("--seconds", type=_count, default=0, help="for each target, at most; otherwise no limit")
    parser.add_argument("--keep", action="store_true", help="add inputs that lead to new code to the corpus")
    given = parser.parse_args(argv)
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        parser.error("there is no atheris: pip install -c constraints.txt -e '.[fuzz]', with Python 3.11 to 3.13")
    print(TABLE_HEAD, flush=True)
    finds = 0
    for name in given.targets or TARGETS:
        path = Path(tempfile.mkdtemp(prefix=f"lab-fuzz-{name}-"))
        fuzzed = fuzz(TARGETS[name], given.runs, path, seconds=given.seconds)
        print(fuzzed, flush=True)
        if fuzzed.problem:
            finds += 1
            print(f"{fuzzed.problem}\nThe input is in {path}.", file=sys.stderr, flush=True)
            continue
        if given.keep:
            keep(fuzzed)
        shutil.rmtree(path)
    return 1 if finds else 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}; a whole number above 0")
    return int(text)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell does
