# SPDX-License-Identifier: GPL-2.0-only
"""Build output: its first error, places in the user's files, and hints.

A module is built in a temporary folder. Stored compiler output names a place as ``<build>/FILE:LINE``; when shown, the
place is that of the file the module was built from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from orchestrator.catalog.data import read
from orchestrator.errors import BuildError
from orchestrator.process import Finished

_BUILD = "<build>"
WARNINGS_FILE = "warnings.txt"
_PLACE = re.compile(rf"{_BUILD}/(?P<file>[^\s:]+)(?::(?P<line>\d+)(?P<column>:\d+)?)?")
_ANY_PLACE = re.compile(r"(/.+?:\d+)(?::\d+)?: (?:fatal )?error")
# Errors of compilers, assemblers, modpost and objtool; not the bare word, which may be in a path. GNU ld has no word.
_ERROR = re.compile(
    r"\b(?:error|Error|ERROR|FATAL): |undefined (?:reference|symbol)|multiple definition of "
    r"|^\S*\bld(?:\.\w+)?: (?!.*\bwarning: )|\*\*\* (?!\[)"
)
_CONSEQUENCE = re.compile(r"make(?:\[\d+\])?: (?:\*\*\* \[|Target |Leaving |Entering )")
_CONTEXT = re.compile(r"In file included from |\s+from |.*: (?:In function|At top level|Assembler messages)")
_WARNING = re.compile(r"\bwarning: ", re.IGNORECASE)
# The build system's own warnings: Makefile and scripts/Makefile.modfinal of Linux 6.1 and 7.3, and make.
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
    """Store the warnings of a build in ``folder`` without the build system's own; writes no file if there are none."""
    lines = [line for line in kept_output(errors, folder).splitlines() if not _OF_THE_BUILD.match(line)]
    if lines:
        (target / WARNINGS_FILE).write_text("".join(f"{line}\n" for line in lines))


def shown_warnings(target: Path, origins: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the stored warnings of ``target``, with places in the files of ``origins``."""
    kept = target / WARNINGS_FILE
    return tuple(located(kept.read_text(), origins)) if kept.exists() else ()


def located(kept: str, origins: Mapping[str, Path]) -> list[str]:
    """Return stored output with places in ``origins``; for a template, lines are those of the rendered file."""
    return [_PLACE.sub(lambda match: _place(match, origins), line) for line in kept.splitlines()]


def _place(match: re.Match[str], origins: Mapping[str, Path]) -> str:
    line, column, origin = match["line"], match["column"] or "", origins.get(match["file"])
    if line is None:
        return str(origin or match["file"])
    if origin is not None and origin.suffix == ".j2":
        return f"{origin} (line {line} of the rendered file)"
    return f"{origin or match['file']}:{line}{column}"


def error_lines(output: str) -> list[str]:
    """The first twenty lines from a build's first error on, without repeated errors and make's consequences."""
    lines = output.splitlines()
    first = _first_error(lines)
    shown: list[str] = []
    context: list[str] = []
    seen: set[str] = set()
    is_repeated = False
    for line in lines[first:]:
        if _CONTEXT.match(line) and shown:
            context.append(line)
        elif not _CONSEQUENCE.match(line):
            if _ERROR.search(line) or _WARNING.search(line):
                is_repeated = line in seen
                seen.add(line)
            shown += [] if is_repeated else [*context, line]
            context = []
    return (shown or lines[first:])[:20]


def _first_error(lines: Sequence[str]) -> int:
    """The index of the first error line; if none is recognised, of the output before make's first failure."""
    found = next((number for number, line in enumerate(lines) if _ERROR.search(line)), None)
    if found is None:
        found = next((number for number, line in enumerate(lines) if _CONSEQUENCE.match(line)), 0)
        while found and not re.match(r"make|  [A-Z]|\s*$", lines[found - 1]):
            found -= 1
    return found


def error_hint(kept: str, beside: Path, files: Collection[str] = ()) -> str:
    """What to do about the first error, if known. ``beside`` is the sources' folder, ``files`` the build's files."""
    line = next(iter(error_lines(kept)), "")
    missing = re.search(r"fatal error: '?([^\s':]+)'?(?:: No such file| file not found)", line)
    name = "" if missing is None else os.path.normpath(missing[1])
    had = next((path for path in files if path == name or path.endswith(f"/{name}")), None)
    if name and had is not None:
        flag = f"-I$(src)/{had.removesuffix(name)}".rstrip("/")
        return f"{had} is there, and not where the compiler looks: a Kbuild has to have ccflags-y := {flag}"
    if name and (beside / name).is_file():
        return f'{name} is there: have a line #include "{name}", or name the module by its folder, with a Kbuild'
    known = ((re.search(one["pattern"], line), one["hint"]) for one in read("build_hints.yaml")["hints"])
    return next((hint.format(*found.groups()) for found, hint in known if found is not None), "")


def build_error(what: str, kept: str, origins: Mapping[str, Path], main: Path, hints: Sequence[str]) -> BuildError:
    """A BuildError with the first error of the output, located in ``origins`` or else in ``main``."""
    match, place = _PLACE.match(next(iter(error_lines(kept)), "")), str(main)
    if match is not None and match["file"] in origins and match["line"] is not None:
        place = _place(match, origins).removesuffix(match["column"] or "")
    detail = error_lines("\n".join(located(kept, origins)))
    hint = "; ".join(filter(None, hints))
    return BuildError(what, where=place, detail=detail, hint=hint)


def compile_error(name: str, finished: Finished, hint: str = "") -> BuildError:
    """A BuildError for a compiler called on a user's file, with its command and first error."""
    words = error_lines(finished.stderr or finished.stdout)
    place = next((found[1] for line in words if (found := _ANY_PLACE.match(line))), "")
    return BuildError(f"{name} does not compile", where=place, detail=[finished.complaint()[0], *words], hint=hint)


def warning_note(module: str, lines: Sequence[str]) -> str:
    """One line on a module's warnings: the first one, and the number of the others."""
    warnings = [line for line in lines if _WARNING.search(line)] or list(lines)
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    return f"the compiler warns about {module}: {warnings[0]}{more}"
