# SPDX-License-Identifier: GPL-2.0-only
"""The recipes of the disk images of guests: the lab's by name, and users' by their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, existing_file, unknown
from orchestrator.catalog.debian_release import Suites, debian, releases
from orchestrator.catalog.written_recipe import Init, parse_recipe
from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir, user_path
from orchestrator.program import PROGRAM

SUFFIX = ".yaml"
DEFAULT_IMAGE = "debian-amd64"
"""The image of commands and libraries, where none is named."""
SMALLEST, LARGEST = 512 << 20, 64 << 30
"""Limits of a file system's size, in bytes."""

_OTHER_SUFFIXES = (".yml", ".qcow2", ".qcow", ".img", ".raw")
"""Suffixes of files that a user may have meant to name by a path."""


class ImageRecipe(CatalogEntry):
    """A Debian system: ``size`` of its file system in bytes, ``init`` the lab's small one or systemd.

    ``release`` is None for that of the lab's kernels.
    """

    name: str
    title: str
    arch: Arch
    packages: tuple[str, ...]
    init: Init
    size: int
    release: str | None = None

    @property
    def suites(self) -> Suites | None:
        return None if self.release is None else releases()[self.release]


@lru_cache(maxsize=1)
def images() -> Mapping[str, ImageRecipe]:
    """The lab's recipes by name."""
    files = sorted((data_dir("images") / "recipes").glob(f"*{SUFFIX}"))
    return MappingProxyType({file.stem: _read(file) for file in files})


def image(name: str) -> ImageRecipe:
    """The lab's recipe ``name``, or a user's .yaml by its path. Raises ConfigError."""
    if "/" in name:
        return _own(name)
    if name.endswith((SUFFIX, *_OTHER_SUFFIXES)):
        raise ConfigError(f"found {name!r}; name your own file by a path with a slash: ./{name}")
    names = [file.stem for file in (data_dir("images") / "recipes").glob(f"*{SUFFIX}")]
    if name not in names:
        hint = f"name your own image by its path: ./mine{SUFFIX}, a recipe, or ./mine.qcow2, a disk"
        raise ConfigError(unknown("image", name, sorted(names)), hint=hint)
    return _lab_recipe(data_dir("images") / "recipes" / f"{name}{SUFFIX}")


@lru_cache
def _lab_recipe(path: Path) -> ImageRecipe:
    return _read(path)  # takes 3 ms, and a run or a test session asks for the same one again and again


def _own(name: str) -> ImageRecipe:
    path = user_path(name)
    if path.suffix != SUFFIX:
        hint = "your own disk needs no build" if path.suffix in _OTHER_SUFFIXES[1:] else ""
        raise ConfigError(f"found {name!r}; your own recipe is a {SUFFIX} file", hint=hint)
    existing_file(name, (SUFFIX,))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", path.stem):
        what = "a recipe's name has at most 61 letters, digits, '.', '_' and '-'"
        raise ConfigError(f"found {name!r}; {what}", hint="rename it")
    return _read(path)


def _read(path: Path) -> ImageRecipe:
    written, where = parse_recipe(path)
    base = None
    if written.base is not None:
        if "/" in written.base:
            what = f"base: found {written.base!r}; expected the name of one of the lab's images"
            raise ConfigError(what, where=where("base"), hint=f"see: {PROGRAM} build images")
        try:
            base = image(written.base)
        except ConfigError as error:
            raise ConfigError(f"base: {error.what}", where=where("base")) from None
    arch = written.arch or (base.arch if base else None)
    init = written.init or (base.init if base else "small")
    size = base.size if base else None
    if written.size:
        size = int(written.size[:-1]) * {"M": 1 << 20, "G": 1 << 30}[written.size[-1]]
        if not SMALLEST <= size <= LARGEST:
            expected = f"expected {SMALLEST >> 20}M to {LARGEST >> 30}G (unused space takes no room)"
            raise ConfigError(f"size: found {written.size!r}; {expected}", where=where("size"))
    if arch is None or size is None:
        lacking, example = ("arch", "x86_64") if arch is None else ("size", "2G")
        what = f"{lacking} is missing: a recipe without a base needs it"
        raise ConfigError(what, where=where(), hint=f"{lacking}: {example}")
    if base is not None and arch != base.arch:
        raise ConfigError(f"arch: found {arch!r}; its base {base.name} is {base.arch}", where=where("arch"))
    packages = sorted({*written.packages, *(base.packages if base else ())})
    release = written.release or (base.release if base else None)
    if release is not None and release not in releases():
        raise ConfigError(f"release: {unknown('release', release, releases())}", where=where("release"))
    return ImageRecipe(
        name=path.stem,
        title=written.title,
        arch=arch,
        packages=tuple(packages),
        init=init,
        size=size,
        release=None if release == debian().release else release,
    )
