# SPDX-License-Identifier: GPL-2.0-only
"""The disk images of guests: the lab's recipes, users' recipes and disks, and the Debian release."""

from __future__ import annotations

import hashlib
import re
import shlex
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, choices_sentence, existing_file, read, similar_file, unknown
from orchestrator.catalog.unique_keys import DuplicateKeyError, load_unique
from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir, user_path
from orchestrator.plain_text import cut
from orchestrator.program import PROGRAM

Init = Literal["small", "systemd"]

SUFFIX = ".yaml"
SMALLEST, LARGEST = 512 << 20, 64 << 30
"""Limits of a file system's size, in bytes."""

_LARGEST_FILE = 64 << 10
_OTHER_SUFFIXES = (".yml", ".qcow2", ".qcow", ".img", ".raw")
"""Suffixes of files that a user may have meant to name by a path."""

_OF_EXPERIMENTS = frozenset(("kernels", "machines", "probes", "benchmark", "tables"))
"""Keys that identify an experiment file."""

_UNKNOWN = ("extra_forbidden", "invalid_key")
"""Pydantic's error types for an unknown key; the second is for one that is not text, such as a number."""

_Lines = Mapping[tuple[str | int, ...], int]

_EXPECTED = {
    "title": "a text of at most 200 characters; put a number in quotes",
    "base": "the name of one of the lab's recipes, such as debian-amd64",
    "arch": "i386 or x86_64",
    "packages": "a list of names of Debian packages, such as [strace, gdb]: lower-case letters, digits, '+', '.' and "
    "'-', without a version",
    "init": "small or systemd",
    "size": "a number with M or G, such as 2G",
    "release": "the name of a release of Debian, such as trixie",
}
_EXAMPLE = """\
title: Debian with a tracer
base: debian-amd64
packages: [strace]"""

PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]{1,100}$")]


class WrittenRecipe(CatalogEntry):
    """A recipe as written. Missing keys are taken from its base, and its packages are added to the base's."""

    title: str = Field(min_length=1, max_length=200)
    """The title in ``./lab build images``, up to 200 characters."""
    base: str | None = None
    """The lab's recipe that this one extends."""
    arch: Arch | None = None
    """The architecture. Required without a base; else it must be the base's."""
    packages: list[PackageName] = Field(default_factory=list, max_length=1000)
    """Debian packages, up to 1000, besides the base's, the essential and the required ones."""
    init: Init | None = None
    """The init: ``small``, the lab's own, or ``systemd``. By default the base's, else ``small``."""
    size: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}[MG]$")] | None = None
    """The file system's size, ``512M`` to ``64G``; unused space takes no room. Required without a base."""
    release: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,20}$")] | None = None
    """The release of Debian that all packages are of, such as ``trixie``. By default the base's, else ``bookworm``."""


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
        return None if self.release is None else _releases()[self.release]


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
    written, where = _parse(path)
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
    if release is not None and release not in _releases():
        raise ConfigError(f"release: {unknown('release', release, _releases())}", where=where("release"))
    return ImageRecipe(
        name=path.stem,
        title=written.title,
        arch=arch,
        packages=tuple(packages),
        init=init,
        size=size,
        release=None if release == debian().release else release,
    )


def _parse(path: Path) -> tuple[WrittenRecipe, Callable[..., str]]:
    """A recipe as written, and a function that returns ``FILE:LINE`` of a key, without a key that of the first."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"found {str(path)!r}; it cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise ConfigError(f"found {str(path)!r}; it is larger than {_LARGEST_FILE >> 10} KiB, too large for a recipe")
    try:
        fields = load_unique(content)
        lines = _lines(yaml.compose(content, yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = str(getattr(error, "problem", None) or error)
        what = problem if isinstance(error, DuplicateKeyError) else f"this is not YAML: {problem}"
        raise ConfigError(what, where=place) from None
    if not isinstance(fields, dict):
        what = "the recipe is empty" if fields is None else "a recipe is a mapping of keys to values"
        raise ConfigError(what, where=str(path), hint=f"for example:\n{_EXAMPLE}")
    if fields.keys() & _OF_EXPERIMENTS and not fields.keys() & WrittenRecipe.model_fields.keys():
        hint = f"a recipe is, for example:\n{_EXAMPLE}"
        raise ConfigError("this is an experiment, not an image recipe", where=str(path), hint=hint)

    def where(*key: str | int) -> str:
        place = (str(key[0]), *key[1:]) if key else ()
        return f"{path}:{lines.get(place) or lines[()]}"

    try:
        return WrittenRecipe.model_validate(fields), where
    except ValidationError as error:
        # Report an unknown key before a missing one: it shows that the file is something else.
        errors = error.errors(include_url=False)
        first = next((detail for detail in errors if detail["type"] in _UNKNOWN), errors[0])
        raise ConfigError(_sentence(first), where=where(*() if first["type"] == "missing" else first["loc"])) from None


def _lines(root: yaml.Node | None) -> _Lines:
    if not isinstance(root, yaml.MappingNode):
        return {}
    lines: dict[tuple[str | int, ...], int] = {(): root.start_mark.line + 1}
    for key, value in root.value:
        name = str(key.value)
        lines[name,] = key.start_mark.line + 1
        if isinstance(value, yaml.SequenceNode):
            lines |= {(name, index): item.start_mark.line + 1 for index, item in enumerate(value.value)}
    return lines


def _sentence(first: ErrorDetails) -> str:
    top, key = str(first["loc"][0]), ".".join(map(str, first["loc"]))[:80]
    if first["type"] in _UNKNOWN:
        return f"unknown key '{key}'; {choices_sentence(key, _EXPECTED)}"
    if first["type"] == "missing":
        return f"{key} is missing; expected {_EXPECTED[top]}"
    return f"{key}: found {cut(repr(first['input']), 80, '...')}; expected {_EXPECTED[top]}"


BEGIN = 33 << 10
"""Bytes to read of a file to identify it: a CD's mark is after 32 KiB."""


_EXTERNAL_DATA = 1 << 2
_BOOT_RECORD, _EXT4 = (0x1FE, b"\x55\xaa"), (0x438, b"\x53\xef")
_HEADER = struct.Struct(">4sIQ56xQ")
"""Magic, version, offset of the backing file's name, and (version 3) the incompatible features."""


@dataclass(frozen=True)
class UserDisk:
    """A disk with a system on its first ext4. ``key`` hashes path, size and time, since hashing the disk is slow."""

    name: str
    key: str
    file: Path
    format: Literal["qcow2", "raw"]


def is_user_disk(name: str) -> bool:
    """Whether an image's name is a path of a disk: not of a .yaml file."""
    return "/" in name and not name.endswith(".yaml")


def find_disk(name: str) -> UserDisk:
    """The disk at a path. Raises ConfigError for a file that is missing or unusable."""
    path = user_path(name)
    if not path.is_file():
        what, hint = "this file does not exist", similar_file(path, (".qcow2", ".qcow", ".img", ".raw"))
        if path.is_dir():
            what, hint = "this is a folder", "a disk is a file; --data gives a guest a folder of the host"
        elif path.exists():
            what, hint = "this is not a regular file", ""
        raise ConfigError(f"found {name!r}; {what}", hint=hint)
    try:
        facts = path.stat()
        with path.open("rb") as file:
            begin = file.read(BEGIN)
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    format_: Literal["qcow2", "raw"] = "raw"
    if begin.startswith(b"QFI\xfb"):
        format_ = "qcow2"
        _refuse_qcow2(name, begin)
    else:
        _refuse_raw(name, path, facts.st_size, begin)
    key = hashlib.sha256(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()[:24]
    return UserDisk(path.name, key, path, format_)


def _refuse_raw(name: str, path: Path, size: int, begin: bytes) -> None:
    for form in read("other_files.yaml")["files"]:
        if begin[form["at"] :].startswith(bytes.fromhex(form["mark"])):
            hint = form["hint"].format(old=shlex.quote(str(path)), new=shlex.quote(f"{path.stem}.qcow2"))
            raise ConfigError(f"found {name!r}; it is {form['what']}, not a qcow2 or raw disk", hint=hint)
    if path.suffix == ".yml":
        raise ConfigError(f"found {name!r}; a recipe's name ends with .yaml")
    if size < 1 << 20:
        raise ConfigError(f"found {name!r}; it is too small for a disk (qcow2 or raw)")
    if not any(begin[place:].startswith(mark) for place, mark in (_BOOT_RECORD, _EXT4)):
        what = "it has neither a partition table nor an ext4 file system"
        raise ConfigError(f"found {name!r}; {what}", hint="a disk holds a system on ext4, in a partition or without")


def _refuse_qcow2(name: str, begin: bytes) -> None:
    """Refuse unsupported versions, and names of other files: the guest could read any file of the host."""
    if len(begin) < _HEADER.size:
        raise ConfigError(f"found {name!r}; it is not a whole qcow2", hint="copy it again")
    _, version, backing, features = _HEADER.unpack_from(begin)
    if version not in (2, 3):
        hint = "convert it: qemu-img convert -O qcow2 OLD NEW"
        raise ConfigError(f"found {name!r}; it is a qcow of version {version}, not 2 or 3", hint=hint)
    if backing or (version >= 3 and features & _EXTERNAL_DATA):
        what = f"found {name!r}; it has a backing file or a data file, and a disk must be one file"
        raise ConfigError(what, hint="merge them: qemu-img convert -O qcow2 OLD NEW")


class Suites(CatalogEntry):
    """Suites to take packages from. The first is required; the security suite is in an archive of its own."""

    release: str
    title: str
    suites: list[str]
    security_suite: str = ""

    def having(self, versions: Iterable[str]) -> str:
        """The clause ``Debian 13 has 6.1, 6.12``, or ``has none``."""
        return f"{self.title} has {', '.join(versions) or 'none'}"


class NewerHeaders(CatalogEntry):
    """A package with headers, of another release by that one's first suite, in a ``version`` that hosts may lack.

    ``names`` are expressions for what only they define.
    """

    package: str
    release: str
    version: str
    names: list[str]


class DebianRelease(Suites):
    """A release, the compiler of its kernels (a gcc), and the suites ``elsewhere`` with other kernels.

    ``libbpf`` has the headers that BPF programs are compiled with where a host's are older and not enough.
    """

    elsewhere: list[Suites]
    keyrings: list[str]
    other_releases: list[str]
    compiler: str
    compiler_packages: list[str]
    compiler_tools: list[str]
    libbpf: NewerHeaders


@lru_cache(maxsize=1)
def debian() -> DebianRelease:
    """The release of ``debian.yaml``."""
    return DebianRelease.model_validate(read("debian.yaml"))


def _releases() -> Mapping[str, Suites]:
    """The known releases by their main suites' names."""
    known = debian()
    return {suites.suites[0]: suites for suites in reversed((known, *known.elsewhere))}
