# SPDX-License-Identifier: GPL-2.0-only
"""The compiler's words on a module, with the places in the files that a person has written.

A module is built in a temporary folder. What is kept of the compiler's output names a place as ``<build>/FILE:LINE``;
it is shown with the files that the module comes from at that time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.catalog.build_hints import build_hint

_BUILD = "<build>"
WARNINGS_FILE = "warnings.txt"
_PLACE = re.compile(rf"{_BUILD}/(?P<file>[^\s:]+)(?::(?P<line>\d+)(?P<column>:\d+)?)?")
# Not the word alone, which may be in a path.
_ERROR = re.compile(r"(?:error|ERROR): |undefined |\*\*\* ")
_WARNING = re.compile(r"\bwarning: ", re.IGNORECASE)
# The kernel's build system, of itself: Makefile and scripts/Makefile.modfinal of Linux 6.1 and 7.3, and make.
_OF_THE_BUILD = re.compile(
    r"make(?:\[\d+\])?: "
    r"|warning: (?:the compiler|pahole version) differs from the one used to build the kernel$"
    r"|  The kernel was built (?:by|with): "
    r"|  You are using: "
    r"|Skipping BTF generation for "
)


def kept_output(output: str, folder: Path) -> str:
    """Return a build's output without the path of the folder that it was built in."""
    return output.replace(str(folder), _BUILD)


def keep_warnings(target: Path, errors: str, folder: Path) -> None:
    """Keep in ``target`` what a build in ``folder`` that succeeded printed as errors.

    What the build system says of itself is left out; where nothing is left there is no file.
    """
    lines = [line for line in kept_output(errors, folder).splitlines() if not _OF_THE_BUILD.match(line)]
    if lines:
        (target / WARNINGS_FILE).write_text("".join(f"{line}\n" for line in lines))


def shown_warnings(target: Path, origins: Mapping[str, Path]) -> tuple[str, ...]:
    """Return what was kept in ``target``, with the places in the files of ``origins``."""
    kept = target / WARNINGS_FILE
    return tuple(located(kept.read_text(), origins)) if kept.exists() else ()


def located(kept: str, origins: Mapping[str, Path]) -> list[str]:
    """Return kept output as lines that name the files of ``origins``, by a built file's name, in its place.

    The lines of a template are those of the rendered file, and it is said so.
    """

    def place(match: re.Match[str]) -> str:
        line, column = match["line"], match["column"] or ""
        origin = origins.get(match["file"])
        if line is None:
            return str(origin or match["file"])
        return f"{origin or match['file']}:{line}{column}" if not _is_template(origin) else _rendered(origin, line)

    return [_PLACE.sub(place, line) for line in kept.splitlines()]


def first_error(kept: str) -> int:
    """Return the number of the first line of kept output that tells of an error; 0 where none does."""
    return next((number for number, line in enumerate(kept.splitlines()) if _ERROR.search(line)), 0)


def error_hint(kept: str) -> str:
    """Return what to do about the first error; empty where nothing is known of it."""
    lines = kept.splitlines()
    return build_hint(lines[first_error(kept)]) if lines else ""


def error_place(kept: str, origins: Mapping[str, Path]) -> str | None:
    """Return where the first error is, ``file:line``; None where that is in no file of ``origins``."""
    lines = kept.splitlines()
    match = _PLACE.match(lines[first_error(kept)]) if lines else None
    origin = origins.get(match["file"]) if match is not None else None
    if match is None or origin is None or match["line"] is None:
        return None
    return _rendered(origin, match["line"]) if _is_template(origin) else f"{origin}:{match['line']}"


def warning_note(module: str, lines: Sequence[str]) -> str:
    """Return one line on the warnings of a module: the first of them, and how many more there are."""
    warnings = [line for line in lines if _WARNING.search(line)] or list(lines)
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    return f"the compiler warns of {module}: {warnings[0]}{more}"


def _is_template(origin: Path | None) -> bool:
    return origin is not None and origin.suffix == ".j2"


def _rendered(origin: Path | None, line: str) -> str:
    return f"{origin} (line {line} of the rendered file)"
