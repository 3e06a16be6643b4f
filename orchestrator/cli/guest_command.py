# SPDX-License-Identifier: GPL-2.0-only
"""``exec``, whose arguments are a command with options of its own."""

from __future__ import annotations

import shlex
from typing import Any

from orchestrator.cli.examples import WithExamples
from orchestrator.cli.usage import TypersError
from orchestrator.program import PROGRAM


class WithGuestCommand(WithExamples):
    """A command of ours with one for the guest behind it, where all options are the latter's.

    Without ``--`` between them an option of the one could be taken for the other's: that is refused.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take our options and the guest's command."""
        given = list(args)
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        command = list(ctx.params.get("command") or ())
        option = next((word for word in command if word.startswith("-") and word != "-"), None)
        if option is not None and "--" not in given:
            ours = given[: len(given) - len(command)]
            example = shlex.join(["exec", *ours, "--", *command])
            rule = "options of exec go before the command, and -- before one with options of its own"
            raise TypersError(f"{option} is behind the command; {rule}: {PROGRAM} {example}")
        return rest
