# SPDX-License-Identifier: GPL-2.0-only
"""The name of the program, and its commands as the user can type them."""

from __future__ import annotations

import os
import shlex

NAME = "orchestrator"
"""The name of the installed program."""

CHECKOUT_SCRIPT = "ORCHESTRATOR_CALLED_AS" in os.environ
"""Whether the script ``lab`` of a checkout, which has the command ``test``, started this process."""

_CALLED = [os.environ.get(f"ORCHESTRATOR_CALLED_{how}") for how in ("BY", "AS", "WITH")]
_WORDS = [_CALLED[0], _CALLED[1] or NAME, _CALLED[2]]

PROGRAM = shlex.join(word for word in _WORDS if word)
"""The command as the user typed it, such as ``./lab``, ``sh lab`` or ``./lab container``; the script passes it."""


def command(*words: str) -> str:
    """A command of this program as it can be pasted: ``./lab run 'my file.yaml'``."""
    return f"{PROGRAM} {shlex.join(words)}"
