# SPDX-License-Identifier: GPL-2.0-only
"""Build output: its first error, places in the user's files, and hints.

A module is built in a temporary folder. Stored compiler output names a place as ``<build>/FILE:LINE``, or ``FILE:LINE``
where the build runs in that folder (Linux 6.13 and later); when shown, the place is that of the file the module was
built from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from orchestrator.catalog.data import read
from orchestrator.errors import BuildError
from orchestrator.plain_text import cut
from orchestrator.process import Finished

_BUILD = "<build>"
WARNINGS_FILE = "warnings.txt"
_ANY_PLACE = re.compile(r"(/.+?:\d+)(?::\d+)?: (?:fatal )?error")
# Errors of compilers, assemblers, modpost and objtool; not the bare word, which may be in a path. GNU ld has no word.
_ERROR = re.compile(
    r"\b(?:error|Error|ERROR|FATAL): |undefined (?:reference|symbol)|multiple definition of "
    r"|^\S*\bld(?:\.\w+)?: (?!.*\bwarning: )|\*\*\* (?!\[)|^\S*Module\.symvers: "
)
# A missing header (fatal error), a full disk or a killed compiler may be the host's.
_OF_CODE = re.compile(
    r":\d+: error: |undefined (?:reference|symbol)|multiple definition of |ERROR: modpost: .* undefined!"
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


class SourceLine(NamedTuple):
    """A line of a file, from 1 on."""

    file: Path
    number: int


@dataclass(frozen=True)
class Origins:
    """The user's files by the names that a build has for them, and where each line of a rendered file comes from."""

    files: Mapping[str, Path]
    rendered: Mapping[str, Callable[[], Sequence[SourceLine]]] = field(default_factory=dict)

    @cached_property
    def _place(self) -> re.Pattern[str]:
        names = "|".join(re.escape(name) for name in sorted(self.files, key=len, reverse=True))
        bare = rf"|(?<![^\s\[(])(?P<bare>{names})(?=[:,\]\s])" if names else ""
        return re.compile(rf"(?:{_BUILD}/(?P<file>[^\s:\],]+){bare})(?::(?P<line>\d+)(?P<column>:\d+)?)?")

    def located(self, line: str) -> str:
        """A line of stored output with places in the user's files."""
        return self._place.sub(lambda match: self._shown(match, with_column=True), line)

    def first(self, lines: Sequence[str]) -> str:
        """The place (FILE:LINE) of an error: where its first line says, else where its macros or headers are used.

        Empty if no line of the user's files is named.
        """
        match = self._place.match(next(iter(lines), ""))
        matches = [match, *(self._place.match(line) for line in lines if ": in expansion of macro " in line)]
        matches += [self._place.search(line) for line in lines if re.match(r"In file included |\s+from ", line)]
        known = (match for match in matches if match is not None and match["line"] and self._name(match) in self.files)
        return next((self._shown(match, with_column=False) for match in known), "")

    def _name(self, match: re.Match[str]) -> str:
        return str(match["file"] or match.groupdict().get("bare"))

    def _shown(self, match: re.Match[str], *, with_column: bool) -> str:
        name, number = self._name(match), match["line"]
        if number is None:
            return str(self.files.get(name, name))
        origin = self.files.get(name)
        if origin is not None and origin.suffix == ".j2":
            lines = self.rendered[name]() if name in self.rendered else ()
            known = next(iter(lines[int(number) - 1 : int(number)]), None)
            return f"{known.file}:{known.number}" if known else f"{origin} (line {number} of the rendered file)"
        column = match["column"] or "" if with_column else ""
        return f"{origin or name}:{number}{column}"


def shown_warnings(target: Path, origins: Origins) -> tuple[str, ...]:
    """Return the stored warnings of ``target``, with places in the user's files."""
    kept = target / WARNINGS_FILE
    return tuple(map(origins.located, kept.read_text().splitlines())) if kept.exists() else ()


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
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), None)
    if first is None:
        first = next((number for number, line in enumerate(lines) if _CONSEQUENCE.match(line)), 0)
        while first and not re.match(r"make|  [A-Z]|\s*$", lines[first - 1]):
            first -= 1
    return first


def is_of_code(text: str) -> bool:
    """Whether a build's output names an error of the code: the next build of the same code has it again."""
    return _OF_CODE.search(text) is not None


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
    known = ((re.search(entry["pattern"], line), entry["hint"]) for entry in read("build_hints.yaml")["hints"])
    return next((hint.format(*match.groups()) for match, hint in known if match is not None), "")


def build_error(what: str, kept: str, origins: Origins, main: Path, hints: Sequence[str]) -> BuildError:
    """A BuildError with the first error of the output, located in the user's files or else in ``main``."""
    lines = kept.splitlines()
    first = _first_error(lines)
    place = origins.first([*error_lines(kept), *_included_from(lines[:first])]) or str(main)
    detail = error_lines("\n".join(map(origins.located, lines)))
    hint = "; ".join(filter(None, hints))
    return BuildError(with_first_error(what, detail), where=place, detail=detail, hint=hint)


_ERROR_WORDS = re.compile(r".*?\b(?:fatal error|error|Error|ERROR|FATAL): (?=\S)|.*?\*\*\* |\S*\bld(?:\.\w+)?: ")
_LONGEST_ERROR = 200  # characters


def with_first_error(what: str, lines: Sequence[str]) -> str:
    """A sentence with the words of the first error, which stand alone in a progress line, a summary or a mail."""
    line = next(iter(lines), "")
    words = _ERROR_WORDS.sub("", line, count=1).removesuffix(".  Stop.").strip() if _ERROR.search(line) else ""
    return f"{what}: {cut(words, _LONGEST_ERROR)}" if words else what


def _included_from(before: Sequence[str]) -> Sequence[str]:
    """The lines right before an error that say which file included the erroneous one, the user's first."""
    count = 0
    while count < len(before) and _CONTEXT.match(before[-1 - count]):
        count += 1
    return before[len(before) - count :][::-1]


def kernel_error(what: str, tree: Path, output: str) -> BuildError:
    """A BuildError with the first error of a kernel's build, in the file of the ``tree`` where make names one."""
    lines = error_lines(output)
    match = re.match(r"(\S+\.[chS]):(\d+)(?::\d+)?: ", next(iter(lines), ""))
    where = f"{os.path.normpath(tree / match[1])}:{match[2]}" if match is not None else str(tree)
    return BuildError(with_first_error(what, lines), where=where, detail=lines)


def compile_error(name: str, finished: Finished, hint: str = "") -> BuildError:
    """A BuildError for a compiler called on a user's file, with its command and first error."""
    words = error_lines(finished.stderr or finished.stdout)
    place = next((match[1] for line in words if (match := _ANY_PLACE.match(line))), "")
    what = with_first_error(f"{name} does not compile", words)
    return BuildError(what, where=place, detail=[finished.complaint()[0], *words], hint=hint)


def warning_note(module: str, lines: Sequence[str]) -> str:
    """One line on a module's warnings: the first one, and the number of the others."""
    warnings = [line for line in lines if _WARNING.search(line)] or list(lines)
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    return f"the compiler warns about {module}: {warnings[0]}{more}"
