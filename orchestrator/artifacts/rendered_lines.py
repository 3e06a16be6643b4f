# SPDX-License-Identifier: GPL-2.0-only
"""Which line of a template, or of a template that it includes, each line of a rendered module comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from orchestrator.artifacts.diagnostics import SourceLine
from orchestrator.artifacts.sources import read_c_source

_MARK = re.compile("\x02(\\d+):(\\d+)\x03")
"""The number of a template, and that of a line in it."""
_LEADING = re.compile("(?:\\s*\x02\\d+:\\d+\x03)+")
"""The marks in front of a line's text; the last is the text's, the others are of lines that have become nothing."""


def template_environment(loader: jinja2.BaseLoader) -> SandboxedEnvironment:
    """The rules by which templates of modules are rendered."""
    return SandboxedEnvironment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )


class _MarkingLoader(jinja2.FileSystemLoader):
    """Loads templates with a mark in front of each line of their text, which rendering keeps."""

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(folders)
        self.files: list[Path] = []

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        text, filename, is_current = super().get_source(environment, template)
        return self.marked(environment, text, Path(filename)), filename, is_current

    def marked(self, environment: jinja2.Environment, text: str, file: Path) -> str:
        number = len(self.files)
        self.files.append(file)
        parts = []
        for line, kind, part in environment.lex(text):
            mark = f"\x02{number}:{line}\x03"
            if kind == "data":
                begin, *rest = part.split("\n")
                part = "\n".join([begin, *(f"\x02{number}:{line + at}\x03{text}" for at, text in enumerate(rest, 1))])
            parts.append(f"{mark}{part}" if kind in ("data", "variable_begin") else part)
        return "".join(parts)


def line_origins(file: Path, folders: Sequence[Path], values: Mapping[str, object], rendered: str) -> list[SourceLine]:
    """The origin of each line of ``rendered``, which ``file`` makes of the values; empty if it cannot be told."""
    loader = _MarkingLoader(folders)
    environment = template_environment(loader)
    try:
        text = environment.from_string(loader.marked(environment, read_c_source(file), file)).render(values)
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return []
    if _MARK.sub("", text) != rendered:  # a filter has changed a mark
        return []
    origins, last = [], SourceLine(file, 1)
    for line in text.split("\n"):
        leading = _LEADING.match(line)
        marks = _MARK.findall(leading[0])[-1:] if leading is not None else _MARK.findall(line)[:1]
        for number, at in marks:
            last = SourceLine(loader.files[int(number)], int(at))
        origins.append(last)
    return origins
