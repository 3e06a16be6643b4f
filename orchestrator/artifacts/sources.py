# SPDX-License-Identifier: GPL-2.0-only
"""The sources of a user's file: each file that its compiler reads, found through includes or in a folder.

Results depend on all of them. The compiler itself lists them: it follows ``#include "sub/x.h"``, ``<x.h>`` and headers
named by macros.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.files import is_file, read_bounded_text
from orchestrator.paths import data_dir
from orchestrator.process import run

_LIMIT = 60.0
_LARGEST_TEXT = 1 << 20
_SYSTEM = (Path("/usr/include"), Path("/usr/lib"), Path("/usr/share"))
"""Where the distribution's packages have headers; those in /usr/local are the user's."""
_OF_COMPILER = re.compile("/usr/lib/(?:gcc|clang|llvm-[^/]+)/")
"""Matches headers of the host's compilers, which the compiler's version identifies."""
OF_THE_LAB = "lab:"
"""Prefix of the titles of the lab's files, as the user may have a file of the same name."""


@dataclass(frozen=True)
class UserSource:
    """A user's file with everything it is built from, or a line of an experiment.

    ``name`` is the user's name for it, ``file`` its path, empty for a line. ``digests`` are SHA-256 by title: paths
    relative to the main file's folder for the user's files, ``lab:FOLDER/NAME`` for the lab's, absolute paths for the
    distribution's. ``texts`` are the contents of the user's text files, by title.
    """

    name: str
    file: str
    digests: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()[:24]


def line_source(text: str) -> UserSource:
    """A line of an experiment, which is its own name."""
    return UserSource(text, "", {"line": hashlib.sha256(text.encode()).hexdigest()}, {"line": text})


def user_source(
    file: Path, read: Iterable[Path] = (), leave_out: Path | None = None, generated: Iterable[Path] = ()
) -> UserSource:
    """A file with all that its compiler reads, except the compiler's headers and ``leave_out``. Raises ConfigError.

    ``generated`` are folders of the lab's besides ``images`` and ``kmods``.
    """
    main, apart = file.absolute(), None if leave_out is None else leave_out.resolve()
    lab = [folder.resolve() for folder in (data_dir("images"), data_dir("kmods"), *generated)]
    digests: dict[str, str] = {}
    texts: dict[str, str] = {}
    for path in dict.fromkeys([main.resolve(), *(file.resolve() for file in read)]):
        is_others = False
        if path == main.resolve():
            title = main.name
        elif _OF_COMPILER.match(str(path)) or (apart is not None and path.is_relative_to(apart)):
            continue
        elif is_others := any(map(path.is_relative_to, _SYSTEM)):
            title = str(path)
        elif is_others := any(map(path.is_relative_to, lab)):
            title = f"{OF_THE_LAB}{path.parent.name}/{path.name}"
        else:
            title = os.path.relpath(path, main.parent.resolve())
        try:
            with path.open("rb") as opened:
                digests[title] = hashlib.file_digest(opened, "sha256").hexdigest()
                opened.seek(0)
                content = b"" if is_others else opened.read(_LARGEST_TEXT + 1)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
        if not (is_others or len(content) > _LARGEST_TEXT or b"\0" in content):
            texts[title] = content.decode(errors="replace")
    return UserSource(main.name, str(main), digests, texts)


def folder_source(folder: Path) -> UserSource:
    """A module's folder with everything that its make may read. Raises ConfigError."""
    main = folder / ("Kbuild" if (folder / "Kbuild").is_file() else "Makefile")
    return replace(user_source(main, [folder / name for name in read_sources(folder)]), name=folder.name)


def files_read(compiler: Sequence[str], environment: Mapping[str, str | None]) -> Sequence[Path]:
    """Every file that a compiler with these arguments reads; empty if compilation fails."""
    finished = run([*compiler, "-w", "-M", "-MT", "files"], time_limit=_LIMIT, environment=environment)
    if finished.status != 0:
        return []
    rules = finished.stdout.replace("\\\n", " ").splitlines()
    words = [word for rule in rules for word in re.findall(r"(?:\\.|[^\s\\])+", rule.removeprefix("files:"))]
    return [Path(re.sub(r"\\(.)", r"\1", word).replace("$$", "$")) for word in words]


_MACRO = re.compile(r"^\s*#\s*(?:define|include\s+[A-Za-z_])(?:.*\\\n)*.*", re.MULTILINE)
"""A macro, which may name a file, or an include of a macro."""
_FILE = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.(?:h|inc|def|tbl)(?![\w.])")


def included(main: str, folders: Sequence[Path]) -> list[Path]:
    """The files that a source includes directly, through others, or by macros. Files that no folder has are left out.

    Each is looked for beside the including file, then in ``folders``, of which the first is the source's. NAME.h adds
    the NAME.c or NAME.S beside it. Raises ConfigError for a file that cannot be read.
    """
    return list(_found(main, folders, ()).values())


def included_as(main: str, folders: Sequence[Path]) -> Mapping[str, Path]:
    """The same by paths in a flat copy, in which the files of ``folders[0]`` hide the lab's."""
    return _found(main, folders, folders[:1])


def read_c_source(file: Path) -> str:
    """Return a source's text. Raises ConfigError if it is too large, unreadable or not UTF-8."""
    try:
        text = read_bounded_text(file, _LARGEST_TEXT)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8 text", where=f"{file}:{line}", hint="save the file as UTF-8") from None
    if text is None:
        raise ConfigError("too large for a source file", where=str(file))
    return text


def _found(main: str, folders: Sequence[Path], first: Sequence[Path]) -> Mapping[str, Path]:
    paths: dict[str, Path] = {}
    waiting: list[tuple[str, Sequence[Path], Path]] = [(main, (), Path())]
    while waiting:
        text, beside, place = waiting.pop()
        for name in _named_in(text):
            for key, file in _brought_in(name, beside, place, folders):
                if key not in paths:
                    paths[key], at = file, Path(key).parent
                    replacing = first if any(file.is_relative_to(folder) for folder in folders[1:]) else ()
                    waiting.append((read_c_source(file), [*(path / at for path in replacing), file.parent], at))
    return paths


@lru_cache(maxsize=1024)
def _named_in(text: str) -> Sequence[str]:
    """The files that a text includes or names in macros. The same few hundred texts are searched for each module."""
    macros = (name for line in _MACRO.findall(text) for name in _FILE.findall(line))
    return (*re.findall(r'^\s*#\s*include\s+"([^"\n]{1,200})"', text, re.MULTILINE), *macros)


def _brought_in(name: str, beside: Sequence[Path], place: Path, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """A file named in a file at ``place`` of the folders ``beside``, and the source that belongs to it.

    Paths are texts here: a module has some 600 names, and objects for its 2,000 candidates take five times as long.
    """
    places = (*((parent, _joined(place, name)) for parent in beside), *((folder, name) for folder in folders))
    for folder, path in places:
        file = _joined(folder, name)
        if is_file(file):
            key = os.path.normpath(path)
            yield key, Path(file)
            for ending in "cS" if file.endswith(".h") else "":
                if is_file(source := f"{file[:-1]}{ending}"):
                    yield f"{key[:-1]}{ending}", Path(source)
            return


def _joined(folder: Path, name: str) -> str:
    return name if name.startswith("/") else f"{folder}/{name}"


_MOST_FILES = 2000
_MOST_BYTES = 64 << 20
_BUILT = re.compile(r"\..*|.*\.(o|ko|a|mod|mod\.c|cmd)|Module\.symvers|modules\.order")
"""Hidden files, and what an earlier build left in the folder."""


def read_sources(folder: Path) -> Mapping[str, bytes]:
    """A folder's files by path, without build products. Raises ConfigError for unreadable or too many files."""
    contents: dict[str, bytes] = {}
    size = 0
    file = folder
    try:
        for file in _files(folder, (folder.resolve(),)):
            size += file.stat().st_size
            if len(contents) == _MOST_FILES or size > _MOST_BYTES:
                what = f"holds more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB, too much for a module"
                raise ConfigError(what, where=str(folder))
            contents[str(file.relative_to(folder))] = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(error.filename or file)) from None
    return contents


def _files(folder: Path, within: tuple[Path, ...]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.exists():  # a broken link
            continue
        if path.is_dir():
            place = path.resolve()
            if place.is_relative_to(within[0]) and place not in within:
                yield from _files(path, (*within, place))
        elif path.is_file() and not _BUILT.fullmatch(path.name):
            yield path
