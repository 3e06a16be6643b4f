# SPDX-License-Identifier: GPL-2.0-only
"""What a user's kernel tree gives to the build of a module: headers, build programs, and the symbols.

They may change while the kernel's image stays the same: a static inline function that only modules use, the layout of a
structure, the flags of a Makefile. So a module's key has a digest of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from orchestrator.files import sha256_of

_FOLDERS = ("include", "arch/x86/include", "scripts")
_FILES = (
    "Makefile",
    "arch/x86/Makefile",
    "arch/x86/Makefile_32.cpu",
    "arch/x86/Makefile.cpu",
    "Module.symvers",
    "tools/objtool/objtool",
    "tools/bpf/resolve_btfids/resolve_btfids",
)
"""As the kernel's own packages of headers have them (scripts/package/install-extmod-build).

objtool rewrites a module's objects, resolve_btfids its type information.
"""
_PRODUCTS = (".o", ".cmd", ".d")
"""What a build leaves beside them, with the names of folders and the order of its work in it."""


def headers_digest(tree: Path) -> str:
    """The SHA-256 of all that a module's build reads of a build tree and of the source that it was built from, in hex.

    A file that has size, time and inode of before is not read again: 7,000 files take a third of a second.
    """
    source = (tree / "source").resolve()
    roots = [tree, source] if source.is_dir() else [tree]
    content = hashlib.sha256()
    for number, root in enumerate(roots):
        for file in _files(root):
            status = file.stat()
            facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            line = f"{number} {file.relative_to(root)} {_digest(file, facts)}\n"
            content.update(line.encode(errors="surrogateescape"))
    return content.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder in _FOLDERS:
        for parent, folders, names in os.walk(root / folder):
            folders.sort()
            for name in sorted(names):
                file = Path(parent, name)
                if not name.startswith(".") and not name.endswith(_PRODUCTS) and file.is_file():  # not a broken link
                    yield file
    yield from (root / name for name in _FILES if (root / name).is_file())


@lru_cache(maxsize=1 << 16)
def _digest(file: Path, facts: tuple[int, ...]) -> str:
    del facts
    return sha256_of(file)
