# SPDX-License-Identifier: GPL-2.0-only
"""Texts and pictures that a page carries: each stored once, in the page itself or in a folder beside it."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.results.run_files import KeptFile


@dataclass(frozen=True)
class Attachment:
    """A text of a run; ``id`` is the element's, ``title`` says what it is, ``packed`` is its gzip."""

    id: str
    title: str
    file: KeptFile
    packed: bytes

    @property
    def encoded(self) -> str:
        """The gzip as base64, as the page's script expands it."""
        return base64.b64encode(self.packed).decode()

    @property
    def name(self) -> str:
        """The name of its file beside the page."""
        return f"{re.sub('[^A-Za-z0-9._+-]', '_', self.file.path)}.txt"


@dataclass
class Attachments:
    """The attachments of a page in the order in which they were asked for, each path once."""

    _by_path: dict[str, Attachment | None] = field(default_factory=dict)

    def take(self, path: str, title: str, read: Callable[[str], KeptFile | None]) -> Attachment | None:
        """Return the attachment of a path in the run's directory, which is read once; None where it is not there."""
        if path not in self._by_path:
            file = read(path)
            # Without the time of day, equal runs are equal pages.
            packed = b"" if file is None else gzip.compress(file.content, mtime=0)
            number = len(self.all) + 1
            self._by_path[path] = None if file is None else Attachment(f"file-{number}", title, file, packed)
        return self._by_path[path]

    @property
    def all(self) -> Sequence[Attachment]:
        """Every attachment."""
        return [one for one in self._by_path.values() if one is not None]


@dataclass(frozen=True)
class Beside:
    """A folder beside the page: what is put there becomes a file, and the page has a relative link."""

    folder: str
    files: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> str:
        """Take a file, and return its address."""
        unused, number = name, 1
        while self.files.get(unused, content) != content:
            number += 1
            stem, dot, suffix = name.rpartition(".")
            unused = f"{stem}-{number}{dot}{suffix}"
        self.files[unused] = content
        return f"{self.folder}/{unused}"


@dataclass(frozen=True)
class Page:
    """A page's text, and the files beside it by their names in ``folder``; both are to be written together."""

    text: str
    folder: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
