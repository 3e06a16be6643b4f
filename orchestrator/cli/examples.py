# SPDX-License-Identifier: GPL-2.0-only
"""The examples at the end of each command's help: ``examples.yaml``, read when help is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from orchestrator.program import PROGRAM


def examples() -> Mapping[str, Sequence[str]]:
    """The examples by command, ``kmod build``, without the program's name."""
    from pydantic import TypeAdapter

    from orchestrator.catalog.data import read

    return TypeAdapter(dict[str, list[str]]).validate_python(read("examples.yaml", __package__))


class WithExamples(TyperCommand):
    """A command whose help ends with its examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the examples."""
        lines = [f"{PROGRAM} {example}" for example in examples()[_name(ctx)]]
        self.epilog = "\n\n".join(["Examples:", *lines])  # typer joins lines without a blank one between them
        super().format_help(ctx, formatter)


def _name(ctx: Any) -> str:
    """A command by its name, behind that of its group where it has one."""
    is_in_a_group = ctx.parent is not None and ctx.parent.parent is not None
    return f"{ctx.parent.info_name} {ctx.info_name}" if is_in_a_group else str(ctx.info_name)


def with_examples(app: typer.Typer) -> typer.Typer:
    """``app``, all of whose commands show their examples."""
    for command in app.registered_commands:
        if command.cls is None or not issubclass(command.cls, WithExamples):
            command.cls = WithExamples
    return app
