# SPDX-License-Identifier: GPL-2.0-only
"""Does a reason that ``cost`` prints name the command's options, where a run names an experiment's keys?"""

from __future__ import annotations

import pytest

from orchestrator.cost.in_options import in_options


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "program a is attached to f\nhint: set points: [vfs_read], and make calls that enter it",
            "program a is attached to f\nhint: --point vfs_read, and make calls that enter it",
        ),
        (
            "it is in the program: name the function, with points: ['program:FUNCTION'] or ['libc.so.6:FUNCTION']",
            "it is in the program: name the function, with --point program:FUNCTION or ['libc.so.6:FUNCTION']",
        ),
        ("it is not known: name it, with points: [...]", "it is not known: name it, with --point FUNCTION"),
        (
            "hint: if each call enters it 2 times, set hits: 2",
            "hint: if each call enters it 2 times, name them by --workload FILE.c --hits 2",
        ),
        (
            "hint: set image: debian-amd64, or another",
            "hint: --image debian-amd64, or another",
        ),
        (
            "hint: give the guest more memory: set memory: 2G",
            "hint: give the guest more memory: print the experiment (--print), save it, run it with memory: 2G",
        ),
        ("the kernel refuses it: EINVAL", "the kernel refuses it: EINVAL"),
        ("vfs_read was entered 2 times", "vfs_read was entered 2 times"),
    ],
)
def test_keys_are_options(reason: str, words: str) -> None:
    assert in_options(reason) == words
