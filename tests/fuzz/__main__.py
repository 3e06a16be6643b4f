# SPDX-License-Identifier: GPL-2.0-only
"""``python -m tests.fuzz [TARGET ...]``, in the checkout's folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from .fuzzing import fuzz, keep
from .registry import TARGETS
from .target import NIGHTLY_INPUTS


def main() -> int:
    """Fuzz the targets, one after the other. The status is 1 where one has a find."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz readers of untrusted input.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one or several of: {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=int, default=NIGHTLY_INPUTS, help="inputs for each target (%(default)s)")
    parser.add_argument("--seconds", type=int, default=0, help="for each target, at most; 0: as long as it takes")
    parser.add_argument("--keep", action="store_true", help="add inputs that lead to new code to the corpus")
    given = parser.parse_args()
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    finds = 0
    for name in given.targets or TARGETS:
        found = Path(tempfile.mkdtemp(prefix=f"lab-fuzz-{name}-"))
        fuzzed = fuzz(TARGETS[name], given.runs, found, seconds=given.seconds)
        print(fuzzed, flush=True)
        if fuzzed.problem:
            finds += 1
            print(f"{fuzzed.problem}\nThe input is in {found}.", file=sys.stderr, flush=True)
            continue
        if given.keep:
            keep(fuzzed)
        shutil.rmtree(found)
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
