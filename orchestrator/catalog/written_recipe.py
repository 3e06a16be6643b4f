# SPDX-License-Identifier: GPL-2.0-only
"""An image recipe as its file has it: the keys, and what is wrong with them at which line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, choices_sentence
from orchestrator.catalog.unique_keys import DuplicateKeyError, load_unique
from orchestrator.errors import ConfigError
from orchestrator.files import read_bounded
from orchestrator.plain_text import cut

Init = Literal["small", "systemd"]

_LARGEST_FILE = 64 << 10

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


def parse_recipe(path: Path) -> tuple[WrittenRecipe, Callable[..., str]]:
    """A recipe as written, and a function that returns ``FILE:LINE`` of a key, without a key that of the first."""
    try:
        content = read_bounded(path, _LARGEST_FILE)
    except OSError as error:
        raise ConfigError(f"found {str(path)!r}; it cannot be read: {error.strerror}") from None
    if content is None:
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
