# SPDX-License-Identifier: GPL-2.0-only
"""What a user's file is built from: every file that its compiler reads, by digest, and the user's own as text.

A number depends on each of them. The compiler itself names them: it follows ``#include "sub/x.h"``, ``<x.h>`` and a
header that a macro names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir
from orchestrator.process import run

_LIMIT = 60.0
_LARGEST_TEXT = 1 << 20
_SYSTEM = (Path("/usr/include"), Path("/usr/lib"), Path("/usr/share"))
"""Where the distribution's packages have headers; what is in /usr/local is the user's."""
_OF_COMPILER = re.compile("/usr/lib/(?:gcc|clang|llvm-[^/]+)/")
"""Begins the paths of the headers of the host's compilers: their versions name them."""
OF_THE_LAB = "lab:"
"""Begins the title of a file of the lab's: the user may have one of its name."""
_TARGET = "files"
_WORD = re.compile(r"(?:\\.|[^\s\\])+")


@dataclass(frozen=True)
class OwnSource:
    """A file of the user's with all that it is built from, or a line of an experiment.

    ``name`` is what users call it, ``file`` its path, empty of a line. ``digests`` are SHA-256 by titles: the user's
    files relative to the main one's folder, the lab's as ``lab:FOLDER/NAME``, the distribution's by their paths.
    ``texts`` are those of them that are the user's, and text.
    """

    name: str
    file: str
    digests: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def key(self) -> str:
        """What names this content."""
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()[:24]


def own_line(text: str) -> OwnSource:
    """A line of an experiment, which is its own name."""
    return OwnSource(text, "", {"line": hashlib.sha256(text.encode()).hexdigest()}, {"line": text})


def own_file(file: Path, read: Iterable[Path] = (), leave_out: Path | None = None) -> OwnSource:
    """A file with all that its compiler reads, but for those of the host's compilers and a folder that is left out.

    Raises ConfigError for a file that cannot be read.
    """
    main, apart = file.absolute(), None if leave_out is None else leave_out.resolve()
    digests: dict[str, str] = {}
    texts: dict[str, str] = {}
    for path in dict.fromkeys([main.resolve(), *(one.resolve() for one in read)]):
        is_others = False
        if path == main.resolve():
            title = main.name
        elif _OF_COMPILER.match(str(path)) or (apart is not None and path.is_relative_to(apart)):
            continue
        elif is_others := _is_below(path, _SYSTEM):
            title = str(path)
        elif is_others := _is_below(path, (data_dir("images").resolve(), data_dir("kmods").resolve())):
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
    return OwnSource(main.name, str(main), digests, texts)


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def files_read(compiler: Sequence[str], environment: Mapping[str, str | None]) -> Sequence[Path]:
    """Every file that a compiler reads, with these words behind its name: options, and sources.

    Nothing where it does not compile: to compile tells why.
    """
    finished = run([*compiler, "-w", "-M", "-MT", _TARGET], time_limit=_LIMIT, environment=environment)
    if finished.status != 0:
        return []
    rules = finished.stdout.replace("\\\n", " ").splitlines()
    words = [word for rule in rules for word in _WORD.findall(rule.removeprefix(f"{_TARGET}:"))]
    return [Path(re.sub(r"\\(.)", r"\1", word).replace("$$", "$")) for word in words]
