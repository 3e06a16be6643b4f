# SPDX-License-Identifier: GPL-2.0-only
"""What does the user call this program? Messages that name a command spell it so that it can be pasted."""

from __future__ import annotations

import os
import shlex

NAME = "orchestrator"
"""The program's name where it is installed."""

CHECKOUT_SCRIPT = "ORCHESTRATOR_CALLED_AS" in os.environ
"""Whether it was started by a checkout's script ``lab``, which has the command ``test``."""

_WORDS = [os.environ.get("ORCHESTRATOR_CALLED_BY"), os.environ.get("ORCHESTRATOR_CALLED_AS") or NAME]

PROGRAM = shlex.join(word for word in _WORDS if word)
"""As it was called this time, such as ``./lab`` or ``sh lab``: the script ``lab`` says it in the environment."""


def command(*words: str) -> str:
    """A command of this program as it can be pasted: ``./lab run 'my file.yaml'``."""
    return f"{PROGRAM} {shlex.join(words)}"
