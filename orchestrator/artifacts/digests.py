# SPDX-License-Identifier: GPL-2.0-only
"""Integrity of the cache's folders: a record of a folder's files, made when the folder is complete.

The record is a text file in the folder, with a line ``SHA256 SIZE:MTIME:INODE PATH`` for each file and link (a link's
content is its target). A file whose size, time (nanoseconds) and inode match the record was not written to since, and
is not read: checking 20,000 files takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import lru_cache
from pathlib import Path

from orchestrator.files import sha256_of

RECORD = "digests.txt"
"""The record's file name."""

_HEAD = "# SHA256 SIZE:MTIME:INODE PATH"
_END = "# end"
_FORM = re.compile(r"^([0-9a-f]{64}) (\d+:-?\d+:\d+) ([^\0\n]+)$", re.MULTILINE)

Known = MutableMapping[tuple[int, str], str]
"""Digests by device and facts, so that files that several folders share are read once (patched kernel sources)."""


_Line = tuple[str, str, str]
"""Digest, facts and path. 20,000 files take 85 ms of CPU, of which lstat() takes 55; named tuples make that 105."""


def record(folder: Path, besides: str) -> None:
    """Record all files of a folder, except the top-level one called ``besides``. Raises OSError."""
    names = sorted(name for name in _files(folder) if name not in (RECORD, besides))
    _write(folder, ((_digest(folder, name), _facts(os.lstat(folder / name)), name) for name in names))


def of_file(path: Path) -> str:
    """The SHA-256 of a file, from its folder's record if possible. Raises OSError."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        pair = path.name, _facts(path.lstat())
        return next(digest for digest, facts, name in _read(path.parent) if (name, facts) == pair)
    return of_content(path)


def of_content(path: Path) -> str:
    """The SHA-256 of a file's content, without consulting a record. Raises OSError."""
    result = path.stat()
    return _content_digest(path, result.st_dev, _facts(result))


def changed(folder: Path, known: Known | None = None, *, unverified: str = "") -> str | None:
    """The first file that differs from a folder's record, and how; with ``known`` (digests so far) all are read.

    Files whose paths begin with ``unverified`` are left out.
    """
    try:
        lines = _read(folder, unverified)
    except (OSError, ValueError) as error:
        return f"{RECORD}: cannot be read ({error})"
    root, moved = str(folder), {}
    for line in lines:
        _, recorded_facts, path = line
        try:
            result = os.lstat(f"{root}/{path}")
            facts = _facts(result)
            if facts != recorded_facts or known is not None:
                why = _difference(folder, line, result, known)
                if why is not None:
                    return f"{path}: {why}"
        except FileNotFoundError:
            return f"{path}: is gone"
        except OSError as error:
            return f"{path}: cannot be read ({error.strerror})"
        if facts != recorded_facts:
            moved[path] = facts
    if moved and not unverified:
        # Same content, other facts: a copied cache. If the record cannot be written, all files are read each time.
        with contextlib.suppress(OSError):
            _write(folder, ((digest, moved.get(path, facts), path) for digest, facts, path in lines))
    return None


def _difference(folder: Path, line: _Line, result: os.stat_result, known: Known | None) -> str | None:
    recorded, facts, path = line
    size = int(facts.partition(":")[0])
    if result.st_size != size:
        return f"has {result.st_size} bytes instead of {size}"
    key = (result.st_dev, _facts(result))
    digest = known.get(key) if known is not None else None
    if digest is None:
        digest = _digest(folder, path)
        if known is not None and result.st_nlink > 1:
            known[key] = digest
    return None if digest == recorded else "has different content"


def _files(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        below = os.path.relpath(parent, folder)
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*names, *links):
            yield name if below == "." else f"{below}/{name}"


def _digest(folder: Path, name: str) -> str:
    path = folder / name
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    if not stat.S_ISREG(mode):  # opening a pipe would block
        return hashlib.sha256(str(stat.S_IFMT(mode)).encode()).hexdigest()
    return sha256_of(path)


@lru_cache(maxsize=4096)
def _content_digest(path: Path, device: int, facts: str) -> str:
    del device, facts
    return sha256_of(path)


def _facts(result: os.stat_result) -> str:
    return f"{result.st_size}:{result.st_mtime_ns}:{result.st_ino}"


def _read(folder: Path, left_out: str = "") -> Sequence[_Line]:
    text = (folder / RECORD).read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith(f"{_HEAD}\n") or not text.endswith(f"\n{_END}\n"):
        raise ValueError("it is not whole")
    text = _without(text, left_out) if left_out else text
    lines: list[_Line] = _FORM.findall(text)
    if len(lines) != text.count("\n") - 2:
        raise ValueError("a line of it is damaged")
    return [(digest, facts, _unescaped(path)) for digest, facts, path in lines] if "\\" in text else lines


def _without(text: str, left_out: str) -> str:
    """A record without the lines of files whose paths begin so."""
    return re.sub(rf"^[^ \n]+ [^ \n]+ {re.escape(_escaped(left_out))}.*\n", "", text, flags=re.MULTILINE)


def _unescaped(path: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in path.split("\\\\"))


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace("\n", "\\n")


def _write(folder: Path, lines: Iterable[_Line]) -> None:
    shown = [f"{digest} {facts} {_escaped(path)}" for digest, facts, path in lines]
    text = "\n".join([_HEAD, *shown, _END, ""])
    unfinished = folder / f".{RECORD}.{secrets.token_hex(4)}"
    try:
        unfinished.write_text(text, encoding="utf-8", errors="surrogateescape")
        unfinished.replace(folder / RECORD)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
