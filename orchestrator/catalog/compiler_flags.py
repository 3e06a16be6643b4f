# SPDX-License-Identifier: GPL-2.0-only
"""Flags of clang for users' sources of BPF programs: which are taken, and what their paths are relative to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orchestrator.catalog.data import CatalogEntry, named, read
from orchestrator.errors import ConfigError
from orchestrator.files import read_bounded_text
from orchestrator.paths import user_path

FLAGS_FILE = "compile_flags.txt"
"""The file beside a source with an argument of the compiler on each line, as clang's own tools read it."""
LONGEST_FLAGS = 1 << 14
"""The most characters of all flags of a source."""
_QUOTED = 80


class KnownFlag(CatalogEntry):
    """A flag, or what flags begin with: a row of ``compiler_flags.yaml``, which explains the fields."""

    name: str
    value: Literal["none", "joined", "separate", "either"] = "none"
    path: bool = False
    search: bool = False
    only: list[str] | None = None
    refused: str = ""

    def begins(self, word: str) -> bool:
        if self.refused or self.value in ("joined", "either"):
            return word.startswith(self.name)
        return word == self.name


@lru_cache(maxsize=1)
def _known_flags() -> Sequence[KnownFlag]:
    return list(named(KnownFlag, read("compiler_flags.yaml")["flags"]).values())


@dataclass(frozen=True)
class CompilerFlag:
    """A flag with its value, empty for one that has none."""

    known: KnownFlag
    value: str = ""

    @property
    def words(self) -> Sequence[str]:
        """The compiler's arguments, in one spelling."""
        if self.known.value == "separate" or (self.known.value == "either" and self.known.path):
            return [self.known.name, self.value]
        return [f"{self.known.name}{self.value}"]


@dataclass(frozen=True)
class CompilerFlags:
    """Flags of a source, in their order."""

    flags: tuple[CompilerFlag, ...] = ()

    @classmethod
    def of(cls, words: Sequence[str], where: str = "") -> CompilerFlags:
        """Flags as a compiler's arguments. Raises ConfigError for those that are not taken."""
        return cls(tuple(_flags(words, where)))

    @classmethod
    def of_text(cls, text: str, where: str = "") -> CompilerFlags:
        """Flags in one line, with quotes as in a shell. Raises ConfigError."""
        if len(text) > LONGEST_FLAGS:
            what = f"found flags of {len(text)} characters; at most {LONGEST_FLAGS} are allowed"
            raise ConfigError(what, where=where)
        try:
            words = shlex.split(text)
        except ValueError as error:
            what = f"found {text[:_QUOTED]!r}; {str(error).lower()}: quotes are as in a shell"
            raise ConfigError(what, where=where) from None
        return cls.of(words, where)

    @property
    def words(self) -> Sequence[str]:
        """The compiler's arguments."""
        return [word for flag in self.flags for word in flag.words]

    @property
    def text(self) -> str:
        """The same in one line, which ``of_text`` reads."""
        return shlex.join(self.words)

    @property
    def named(self) -> CompilerFlags:
        """Those that are part of a row's name: not the folders that headers are searched in."""
        return CompilerFlags(tuple(flag for flag in self.flags if not flag.known.search))

    @property
    def folders(self) -> Sequence[Path]:
        """The folders that headers are searched in."""
        return [Path(flag.value) for flag in self.flags if flag.known.search]

    @property
    def paths(self) -> Sequence[Path]:
        """Each file and folder that a flag names."""
        return [Path(flag.value) for flag in self.flags if flag.known.path]

    def behind(self, earlier: CompilerFlags) -> CompilerFlags:
        """These win over ``earlier`` ones: of two folders the first is searched, of two definitions the last holds."""
        search = [flag for flags in (self, earlier) for flag in flags.flags if flag.known.search]
        others = [flag for flags in (earlier, self) for flag in flags.flags if not flag.known.search]
        return CompilerFlags((*search, *others))

    def below(self, folder: Path) -> CompilerFlags:
        """The same with absolute paths: relative ones are below ``folder``, without following links."""
        return self._with_paths(
            lambda path: os.path.normpath(user_path(path) if path.startswith("~") else folder / path), folder
        )

    def seen_from(self, folder: Path, there: Path) -> CompilerFlags:
        """Flags whose relative paths are below ``folder``, with those and others below it relative to ``there``."""

        def placed(path: str) -> str:
            place = Path(os.path.normpath(folder / path))
            is_elsewhere = path.startswith("~") or (Path(path).is_absolute() and not place.is_relative_to(folder))
            return path if is_elsewhere else os.path.relpath(place, there)

        return self._with_paths(placed, folder)

    def _with_paths(self, change: Callable[[str], str], folder: Path) -> CompilerFlags:
        """A file that is not below ``folder`` is looked for where headers are, by the compiler."""
        return CompilerFlags(
            tuple(
                replace(flag, value=change(flag.value))
                if flag.known.search or (flag.known.path and (folder / flag.value).exists())
                else flag
                for flag in self.flags
            )
        )


def _flags(words: Sequence[str], where: str) -> Iterator[CompilerFlag]:
    unprintable = next((word for word in words if not word.isprintable()), None)
    if unprintable is not None:
        raise ConfigError(f"found {unprintable[:_QUOTED]!r}; a flag is one line of printable characters", where=where)
    waiting = iter(words)
    for word in waiting:
        known = _known(word, where)
        value = word.removeprefix(known.name)
        if known.value == "either":
            value = value.strip()
        if known.value == "separate" or (known.value == "either" and not value):
            value = next(waiting, "")
            if not value:
                raise ConfigError(f"found {known.name} without its value", where=where)
        if known.only is not None and value not in known.only:
            allowed = ", ".join(known.name + choice if known.value == "joined" else choice for choice in known.only)
            raise ConfigError(f"found {known.name} with {value[:_QUOTED]!r}; allowed: {allowed}", where=where)
        yield CompilerFlag(known, value)


def _known(word: str, where: str) -> KnownFlag:
    shown = repr(word[:_QUOTED])
    if word.startswith("@"):
        raise ConfigError(f"found {shown}; a file of flags is named {FLAGS_FILE} and is beside the source", where=where)
    if not word.startswith("-"):
        hint = "a flag begins with -; a value with spaces needs quotes"
        raise ConfigError(f"found {shown}; the source is all that is compiled", where=where, hint=hint)
    known = next((flag for flag in _known_flags() if flag.begins(word)), None)
    if known is None:
        taken = ", ".join(flag.name for flag in _known_flags() if flag.search or flag.name in _SHOWN)
        raise ConfigError(f"found {shown}, a flag that the lab does not know; it takes {taken} and others", where=where)
    if known.refused:
        raise ConfigError(f"found {shown}; the lab {known.refused}", where=where)
    return known


_SHOWN = ("-D", "-U", "-O", "-include", "-std=", "-mcpu=", "-W", "-fno-")


def flags_beside(source: Path) -> CompilerFlags:
    """The flags of the file beside a source, with absolute paths; none without the file. Raises ConfigError."""
    file = source.parent / FLAGS_FILE
    try:
        text = read_bounded_text(file, LONGEST_FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return CompilerFlags()
    except (OSError, ValueError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}", where=str(file)) from None
    if text is None:
        raise ConfigError(f"has more than {LONGEST_FLAGS} characters", where=str(file))
    return CompilerFlags.of([line.strip() for line in text.splitlines() if line.strip()], str(file)).below(
        source.parent
    )
